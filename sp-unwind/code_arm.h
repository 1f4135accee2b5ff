/* code.h's rules for AArch64. */
#ifndef SP_UNWIND_CODE_ARM_H
#define SP_UNWIND_CODE_ARM_H

#include "rule.h"

/* The rule at an instruction. called: behind a call, which has overwritten the link register if it
 * returns. Kinds UW_RULE_CODE, whose cfa is, in words from the same register as its slots, where
 * the caller's sp is; and UW_RULE_NONE. Some 5 ns an instruction, 6000 of them at most. */
struct uw_rule uw_code_arm_rule(const struct uw_module *m, uint64_t svma, bool called);

#endif
