/* Stopping by signal, as design.md's section on signals says it: what a tool does with the first
 * SIGINT depends on whether its input is a pipe; the second within 2 s, SIGTERM and SIGHUP end the
 * reading at once, unless they were ignored at the start (nohup(1), the stages that sp-capture runs).
 * SIGPIPE and SIGXFSZ are ignored: a dead reader shows as EPIPE, a file that may not grow as EFBIG. */
#ifndef SP_BASE_STOP_H
#define SP_BASE_STOP_H

enum sp_stop_mode {
	SP_STOP_FIRST, /* sp-capture, and stages that read a file: the first SIGINT stops (level 1) */
	SP_STOP_PIPE,  /* input is a pipe: the first SIGINT is left to the source of the pipe */
};

void sp_stop_install(enum sp_stop_mode mode);

/* 0 go on; 1 stop in an orderly way, draining what is there; 2 stop without waiting for input. */
int sp_stop_level(void);

/* A descriptor that becomes readable when the level rises, for poll(); -1 before install. */
int sp_stop_fd(void);

/* As if a signal had asked for it. */
void sp_stop_raise(int level);

#endif
