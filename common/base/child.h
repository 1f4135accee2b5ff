/* A helper process: a fork of the tool that does one thing which the tool itself may not or should
 * not do (opening files from a sandbox, waiting for the network), and answers over a socket. */
#ifndef SP_BASE_CHILD_H
#define SP_BASE_CHILD_H

/* Forks; the child calls serve(its end of a SOCK_SEQPACKET pair), which must not return: it sees
 * the end of the tool as the end of its socket. The child ignores the signals of the terminal and
 * holds none of the tool's descriptors open. Call it while there is one thread.
 * Returns our end of the socket (close-on-exec), or -1 with errno. */
int sp_child_start(void (*serve)(int fd));

#endif
