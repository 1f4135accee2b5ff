/* Stopping by signal. What comes from a terminal or goes to a whole process group - Ctrl-C, a
 * closed terminal, timeout(1), a service manager - reaches all stages of a pipeline: where the
 * input is a pipe, its source ends, and the stages with it, so that what lies in the pipes is not
 * lost. There the first SIGINT does nothing; SIGTERM and SIGHUP leave 3 s for the input to end.
 * Elsewhere the first SIGINT stops in order, SIGTERM and SIGHUP end the reading at once. A second
 * SIGINT within 2 s, and a second SIGTERM, always do. SIGTERM and SIGHUP that were ignored at the
 * start (nohup(1), the stages that sp-capture runs) stay so. SIGPIPE and SIGXFSZ are ignored: a
 * dead reader shows as EPIPE, a file that may not grow as EFBIG. */
#ifndef SP_BASE_STOP_H
#define SP_BASE_STOP_H

enum sp_stop_mode {
	SP_STOP_FIRST, /* sp-capture, and stages that read a file: the first SIGINT stops (level 1) */
	SP_STOP_PIPE,  /* input is a pipe: its source is to end first */
};

void sp_stop_install(enum sp_stop_mode mode);

/* 0 go on; 1 stop in an orderly way, draining what is there; 2 stop without waiting for input. */
int sp_stop_level(void);

/* A descriptor that becomes readable when the level rises, for poll(); -1 before install. */
int sp_stop_fd(void);

/* As if a signal had asked for it. */
void sp_stop_raise(int level);

#endif
