/* --symbolizer=COMMAND: a co-process that is asked for the names of addresses, one line each
 * (sp-sym.1, SYMBOLIZER COMMANDS). It is asked only about files that were found by their identity.
 */
#ifndef SYM_COMMAND_H
#define SYM_COMMAND_H

#include "stackpulse/symbolize.h"

struct command;

/* Start it, before the sandbox and while there is one thread. What it does not answer within
 * COMMAND_PATIENCE_S seconds, or answers in another form, ends it: then the built-in symbolizer
 * names the rest. */
#define COMMAND_PATIENCE_S 10
int command_start(struct command **out, const char *line, bool no_inline, struct sp_err *err);
void command_free(struct command *c);

/* For sp_resolver_options.native; lives as long as c. */
const struct sp_native_factory *command_factory(const struct command *c);

/* Why it was given up, for one line to the user; NULL when it was not. */
const char *command_complaint(const struct command *c);

#endif
