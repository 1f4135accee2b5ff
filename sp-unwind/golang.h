/* What Go's unwind information leaves out. */
#ifndef SP_UNWIND_GOLANG_H
#define SP_UNWIND_GOLANG_H

#include "rule.h"

/* Whether a return address is where a goroutine's frames end, or a thread's own. Nobody calls Go's
 * goexit: goroutines begin as if its second instruction had (runtime.newproc1). What its own CFI
 * calls the caller is whatever the stack's former owner left there; clone's, what lies above a new
 * thread's stack. */
bool uw_go_root(const struct uw_module *m, uint64_t ra);

/* The rule at an address of Go's code, whose row is CFI's. False: CFI says it all. */
bool uw_go_rule(const struct uw_module *m, const struct cfi_section *s, const struct cfi_fde *fde,
		const struct cfi_row *row, uint64_t svma, struct uw_rule *out);

/* The same where there is no CFI, by the function table that Go's programs have however stripped
 * (elf/pclntab.h): how far sp is from the return address, as .debug_frame has it, and which
 * functions go on on another stack. False: the table does not have the address. */
bool uw_go_table_rule(const struct uw_module *m, uint64_t svma, struct uw_rule *out);

#endif
