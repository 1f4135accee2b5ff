/* Steps without CFI. Whatever is taken here was validated: it lies in executable memory, and
 * where the code's bytes can be read, a call stands before it. */
#include "golang.h"
#include "walker.h"

/* What stands before a return address of a module, from the cache or its bytes. */
static struct uw_call module_call(struct uw_walk *k, const struct uw_map *map, uint64_t ra)
{
	struct uw_call call;
	if (uw_call_cached(k->w, map, ra, &call))
		return call;
	const struct uw_module *m = map->module;
	uint64_t svma = ra - map->bias, from_base = svma - m->base_svma;
	call = uw_code_call(m, svma);
	/* A signal handler returns to a trampoline that nobody called, a goroutine to its root. */
	if (call.kind == UW_CALL_NONE &&
	    (uw_rule_is_signal(uw_rule_get(k->w, map, ra - 1)) || uw_go_root(m, svma)))
		call.kind = UW_CALL_INDIRECT;
	if (from_base <= UINT32_MAX)
		uw_cache_add(uw_cache_set(k->w, m, from_base),
			     (struct uw_cache_slot){.key = UW_CACHE_CALL | (uint64_t)m->id << 32 |
							   from_base,
						    .call = call});
	return call;
}

struct uw_call uw_call_before(struct uw_walk *k, uint64_t ra, const struct uw_map **map)
{
	*map = uw_map_find(k->w, k->s->space, ra - 1);
	if (!*map)
		return (struct uw_call){UW_CALL_NONE, 0};
	if (!(*map)->module)
		return (struct uw_call){UW_CALL_UNKNOWN, 0};
	return module_call(k, *map, ra);
}

/* --- steps --- */

/* A caller that was found: everything but the reason. */
struct caller {
	struct uw_call call;
	uint64_t pc, sp, fp;
	const struct uw_map *map;
};

static bool caller_at(struct uw_walk *k, uint64_t slot, struct caller *c)
{
	if (!uw_stack_word(k, slot, &c->pc))
		return false;
	c->pc &= k->ra_mask;
	c->call = uw_call_before(k, c->pc, &c->map);
	c->sp = slot + k->arch->word_bytes;
	c->fp = k->fp;
	return c->call.kind != UW_CALL_NONE;
}

static int take(struct uw_walk *k, const struct caller *c, enum sp_counter how)
{
	k->w->counters.v[how]++;
	k->pc = k->lr = c->pc;
	k->sp = c->sp;
	k->fp = c->fp;
	k->exact = false;
	return UW_GOES_ON;
}

/* The frame record at fp: the caller's fp, and behind it the return address. */
static bool frame_pointer(struct uw_walk *k, struct caller *c)
{
	unsigned word = k->arch->word_bytes;
	uint64_t fp;
	if (k->fp == UW_FP_LOST || k->fp & (word - 1) || k->fp < k->sp ||
	    !uw_stack_word(k, k->fp, &fp) || !caller_at(k, k->fp + word, c))
		return false;
	c->fp = fp;
	return true;
}

/* CPython's perf trampolines (Python/asm_trampoline.S of 3.12: sub $8,%rsp; call *%rcx; add
 * $8,%rsp; ret) lie in anonymous memory and have neither CFI nor a frame. The interpreter calls
 * itself through them, so that the caller lies in the same file as the callee. */
static bool python_trampoline(struct uw_walk *k, const struct uw_map *map, struct caller *c)
{
	return k->arch->machine == EM_X86_64 && k->s->space->has_python && map &&
	       map->flags & UW_MAP_ANON && k->callee && k->callee->module &&
	       caller_at(k, k->sp + 8, c) && c->call.kind > UW_CALL_UNKNOWN &&
	       c->map->module == k->callee->module;
}

#define ARGC_MAX 65536u

bool uw_program_start(const struct uw_walk *k, uint64_t argc, uint64_t argv)
{
	uint64_t last = argv + 8 * argc, word, i = 0;
	if (k->arch->word_bytes != 8 || !argc || argc > ARGC_MAX ||
	    (uw_stack_u64(k, last, &word) && word))
		return false;
	for (; i < argc && uw_stack_u64(k, argv + 8 * i, &word); i++, last = word)
		if (word <= last)
			return false;
	return i != 0; /* a copy may end in argv: sp-capture's hold two words from argc on */
}

/* The first call of a libc without CFI: musl's __libc_start_main keeps five words, start four. Up
 * to the first return address there is no other frame; if it is that of the entry stub, right below
 * argc, or of a thread's root, that is the caller. */
#define ROOT_WORDS 32u
static bool root_above(struct uw_walk *k, struct caller *c)
{
	for (unsigned i = 0; i < ROOT_WORDS; i++) {
		uint64_t argc;
		if (!caller_at(k, k->sp + i * k->arch->word_bytes, c))
			continue;
		if (!c->map->module || uw_rule_get(k->w, c->map, c->pc - 1).kind != UW_RULE_END)
			return false;
		return !uw_module_in_entry(c->map->module, c->pc - 1 - c->map->bias) ||
		       (uw_stack_u64(k, c->sp, &argc) && uw_program_start(k, argc, c->sp + 8));
	}
	return false;
}

/* How far pc is behind the target of a caller's direct call, if that may be the function at pc. */
#define FUNCTION_MAX (UINT64_C(1) << 20)
static uint64_t into(const struct uw_walk *k, const struct caller *c)
{
	uint64_t at = k->pc - (c->pc + (uint64_t)(int64_t)c->call.rel);
	return c->call.kind == UW_CALL_DIRECT && at <= FUNCTION_MAX ? at : UINT64_MAX;
}

/* Of two possible callers of the function at pc: a direct call's target is that function's
 * beginning, so that the nearer one below pc is the right one. */
static bool nearer(const struct uw_walk *k, const struct caller *a, const struct caller *b)
{
	return into(k, a) < into(k, b);
}

/* Whether the function at pc has just begun. Who calls through a register leaves the function's
 * address in it, as V8 does in rcx for all of its own: 14 bytes before `push %rbp` see whether the
 * code is still valid. HotSpot's compiled code keeps sp a multiple of 16 but for where it has no
 * frame (StackAlignmentInBytes; 16 in all of its x86-64 and aarch64 ports). */
#define PROLOGUE_MAX 16u
static bool begins_here(const struct uw_walk *k)
{
	uint64_t v;
	if (k->s->space->has_jvm && k->sp % 16 == 8)
		return true;
	for (unsigned i = 0; i < k->arch->n_regs; i++)
		if (i != k->arch->pc && uw_sample_reg(k->s, k->arch->perf[i], &v) &&
		    k->pc - v < PROLOGUE_MAX)
			return true;
	return false;
}

static bool has_cfi(struct uw_walk *k, const struct caller *c)
{
	uint8_t kind = uw_rule_get(k->w, c->map, c->pc - 1).kind;
	return kind != UW_RULE_NONE && kind != UW_RULE_CODE;
}

/* Of a return address at sp and one in the frame record: whether the first is the caller's. JIT
 * code can't be read; in most of its instructions it has a frame, and below that lies whatever was
 * left there: old addresses too. Where nothing speaks for one of them, that is a guess; but code of
 * a file without CFI that calls JIT code is the runtime's own, as V8's builtins are, and what is
 * found of it at sp is old (tsc, stepped: at 53 boundaries of 56). A link register is not old. */
static bool top_is_nearer(struct uw_walk *k, const struct uw_map *map, const struct caller *top,
			  const struct caller *fp)
{
	if (k->arch->machine != EM_AARCH64 && !(map && map->module)) {
		if (nearer(k, top, fp))
			return true;
		if (nearer(k, fp, top))
			return false;
		if (begins_here(k))
			return true;
		if (!top->map->module || has_cfi(k, top))
			k->guessed = k->out->n;
		return false;
	}
	return fp->call.kind == UW_CALL_UNKNOWN || !nearer(k, fp, top);
}

/* A new thread's first instructions. glibc's clone and clone3 have no FDE from the system call up
 * to the part that only the new thread executes, because CFI can't tell the two of them (2.36,
 * sysdeps/unix/sysv/linux/x86_64/clone.S: 10 bytes; aarch64's: 16): the call returned 0 here, a
 * thread's number to whoever called clone. */
#define CLONE_GAP_MAX 24
static bool new_thread(struct uw_walk *k, const struct uw_map *map)
{
	uint64_t returned, svma;
	const struct cfi_section *s;
	struct cfi_fde fde;
	if (!map || !map->module || k->out->n > 1 ||
	    !uw_sample_reg(k->s, k->arch->perf[0], &returned) || returned) /* rax, x0 */
		return false;
	svma = k->pc - map->bias;
	for (uint64_t a = svma + 1; a <= svma + CLONE_GAP_MAX; a++)
		if (uw_module_find(map->module, a, &s, &fde))
			return fde.begin == a &&
			       uw_rule_make(map->module, a, NULL).kind == UW_RULE_END;
	return false;
}

#define NULL_PAGE 4096u

/* An interrupted function without CFI: in its first and last instructions, or when it has no
 * frame, its return address is at sp (in the link register); else there is a frame pointer. */
static int interrupted(struct uw_walk *k, const struct uw_map *map)
{
	struct caller top = {0}, fp = {0};
	bool has_fp = frame_pointer(k, &fp), has_top;
	unsigned word = k->arch->word_bytes;
	uint64_t saved;
	/* Called through a pointer to where nothing is, and a signal says so: not one instruction
	 * was executed there. */
	bool nowhere = !map && (k->out->n > 1 || k->pc < NULL_PAGE);
	if (k->arch->machine == EM_AARCH64) {
		top = (struct caller){.pc = k->lr, .sp = k->sp, .fp = k->fp};
		if (k->lr)
			top.call = uw_call_before(k, k->lr, &top.map);
		/* A link register that points into the function itself is left from a call that
		 * has returned. */
		has_top = top.call.kind != UW_CALL_NONE && (!has_fp || k->lr - k->pc + 4096 > 8192);
	} else {
		has_top = caller_at(k, k->sp, &top);
	}
	if (has_top && (!has_fp || nowhere || top_is_nearer(k, map, &top, &fp)))
		return take(k, &top, SP_C_scanned_frames);
	if (nowhere && (k->arch->machine == EM_AARCH64 || uw_stack_word(k, k->sp, &saved)))
		return k->pc || k->out->n == 1 ? UW_NO_MODULE : UW_NULL_RETURN;
	if (nowhere) /* interrupted on another stack than the handler's */
		return uw_stack_missing(k, k->sp);
	/* Behind `push %rbp`: what rbp still holds is at sp, whatever it is. */
	if (k->arch->machine != EM_AARCH64 && uw_stack_word(k, k->sp, &saved) && saved == k->fp &&
	    k->fp != k->sp && caller_at(k, k->sp + word, &top))
		return take(k, &top, SP_C_scanned_frames);
	/* In CPython's trampoline itself, behind its `sub`. */
	if (!has_fp && k->s->space->has_python && map && map->flags & UW_MAP_ANON &&
	    caller_at(k, k->sp + word, &top) && top.call.kind > UW_CALL_UNKNOWN)
		return take(k, &top, SP_C_scanned_frames);
	if (has_fp)
		return take(k, &fp, SP_C_frame_pointer_frames);
	return map && (map->module || map->flags & UW_MAP_ANON) ? UW_NO_CFI : UW_NO_MODULE;
}

/* Why a frame-pointer chain ends here. */
static int chain_end(struct uw_walk *k, const struct uw_map *map)
{
	uint64_t ra, fp = k->fp, end = k->stack_avma + k->stack_bytes;
	unsigned word = k->arch->word_bytes;
	/* The ABI's mark of the outermost frame. JIT code is not outermost, unless a frame record of
	 * such code led here: where none are kept rbp holds any value. */
	if (!fp)
		return map && map->flags & UW_MAP_ANON && !(k->callee && !k->callee->module)
			       ? UW_NO_CFI
			       : UW_END;
	if (fp != UW_FP_LOST && !(fp & (word - 1)) && fp >= k->sp) {
		if (uw_stack_word(k, fp + word, &ra) && !ra)
			return UW_END;
		/* Plausible, but behind the copy. */
		if (fp >= end - (k->stack_bytes ? word : 0) && fp - end < UW_FRAME_MAX)
			return k->stack_bytes ? UW_STACK_EXHAUSTED : UW_NO_STACK;
	}
	if (!map || !(map->module || map->flags & UW_MAP_ANON))
		return UW_NO_MODULE;
	return UW_NO_CFI;
}

/* The rule of the code at pc. r was made for what lies behind a call if there seems to be one
 * before pc, else for an instruction: of an interrupted one, the last bytes of a call may seem to
 * end with its first; and a coroutine's first function returns to where nobody called. */
static struct uw_rule own_rule(const struct uw_walk *k, const struct uw_map *map, struct uw_rule r)
{
	if (!map || !map->module)
		return r;
	uint64_t pc = k->pc - map->bias;
	if ((uw_code_call(map->module, pc + k->exact).kind > UW_CALL_UNKNOWN) != k->exact)
		return r;
	return uw_code_rule(map->module, pc);
}

/* The frame pointer that a code's rule restores, and for which word of the stack it stands. */
static void code_fp(const struct uw_walk *k, struct uw_rule r, uint64_t base, struct caller *c,
		    struct uw_memo_frame *f)
{
	uint64_t from = r.flags & UW_RULE_FP_BY_FP ? k->fp : base;
	uint64_t at = from + (uint64_t)(r.fp_slot * INT64_C(8));
	uint64_t words = (at - c->sp + 32768) / 8;
	c->fp = UW_FP_LOST;
	f->edge = UW_EDGE_CODE;
	if (r.fp_slot == UW_SLOT_KEEP) {
		c->fp = k->fp;
	} else if (r.fp_slot == UW_SLOT_LOST || from == UW_FP_LOST || at & 7 ||
		   !uw_stack_u64(k, at, &c->fp)) {
		f->edge = UW_EDGE_NONE;
	} else if (words < 8192) {
		f->fp_slot = (int16_t)(words - 4096);
	} else {
		f->edge = UW_EDGE_NONE;
	}
	if (r.flags & UW_RULE_DEREF)
		f->edge = UW_EDGE_NONE;
}

#define NOT_SO (-2) /* the way does not lead to a caller */

/* A step to a return address that a register holds, which is known in the leaf; the link register
 * where anything was interrupted. */
static int held_step(struct uw_walk *k, struct uw_rule r, struct uw_memo_frame *f)
{
	const struct uw_arch *a = k->arch;
	struct caller c = {.pc = k->lr};
	uint64_t sp = r.cfa == a->sp ? k->sp : k->fp;
	if (a->ra_same_is_live) {
		if (!k->exact || sp == UW_FP_LOST)
			return NOT_SO;
	} else if (k->out->n > 1 ||
		   !uw_sample_reg(k->s, a->perf[r.flags & UW_RULE_BASE], &c.pc) ||
		   !uw_sample_reg(k->s, a->perf[r.cfa], &sp)) {
		return NOT_SO;
	}
	c.call = uw_call_before(k, c.pc, &c.map);
	if (c.call.kind == UW_CALL_NONE || c.pc == k->pc) /* of a call that has just returned */
		return NOT_SO;
	sp += (uint64_t)(r.ra_slot * INT64_C(8));
	c.sp = sp > k->sp ? sp : k->sp;
	code_fp(k, r, k->sp, &c, f);
	f->edge = UW_EDGE_NONE;
	return take(k, &c, SP_C_scanned_frames);
}

/* A step by what the code does. */
static int code_step(struct uw_walk *k, struct uw_rule r, struct uw_memo_frame *f)
{
	struct caller c = {0};
	unsigned reg = r.flags & UW_RULE_BASE;
	bool by_sp = reg == k->arch->sp, by_fp = reg == k->arch->fp;
	uint64_t base = by_sp ? k->sp : k->fp, end = k->stack_avma + k->stack_bytes;
	if (r.kind == UW_RULE_CODE && r.flags & UW_RULE_HELD)
		return held_step(k, r, f);
	if (r.kind != UW_RULE_CODE || (by_fp && (k->fp == UW_FP_LOST || k->fp < k->sp)))
		return NOT_SO;
	/* Another register is known in the leaf, and behind a call of a part of the same function,
	 * which keeps it (x264's and dav1d's assembly). */
	if (!by_sp && !by_fp && (k->out->n > 2 || !uw_sample_reg(k->s, k->arch->perf[reg], &base)))
		return NOT_SO;
	uint64_t at = base + (uint64_t)(r.ra_slot * INT64_C(8));
	if (r.flags & UW_RULE_DEREF) {
		if (!uw_stack_u64(k, at, &base))
			return NOT_SO;
		at = base + (uint64_t)((int16_t)r.cfa * INT64_C(8));
	}
	if (at & 7 || at < k->sp)
		return NOT_SO;
	if (r.flags == k->arch->sp && at + 8 > end)
		return uw_stack_missing(k, at);
	if (!caller_at(k, at, &c))
		return NOT_SO;
	if (k->arch->ra_same_is_live) {
		c.sp = base + (uint64_t)((int16_t)r.cfa * INT64_C(8));
		if (c.sp <= at)
			return NOT_SO;
	}
	code_fp(k, r, base, &c, f);
	if (k->arch->ra_same_is_live)
		f->edge = UW_EDGE_NONE; /* its sp does not follow from its slots */
	if (by_fp && f->edge == UW_EDGE_CODE)
		f->edge = UW_EDGE_POINTER;
	return take(k, &c, by_fp ? SP_C_frame_pointer_frames : SP_C_scanned_frames);
}

int uw_led_nowhere(struct uw_walk *k)
{
	const struct uw_arch *a = k->arch;
	struct uw_walk leaf = *k;
	struct uw_memo_frame f;
	const struct uw_map *map = uw_map_find(k->w, k->s->space, k->out->addrs[k->out->n - 1]);
	if (uw_program_start(k, k->pc, k->sp))
		return UW_END;
	if (!map || !map->module)
		return UW_NO_MODULE;
	leaf.pc = k->out->return_addrs[k->out->n - 1];
	struct uw_rule r = uw_code_rule(map->module, leaf.pc - map->bias);
	if (r.kind == UW_RULE_END)
		return UW_END;
	if (k->out->n > 1 || !uw_sample_reg(k->s, a->perf[a->sp], &leaf.sp))
		return UW_NO_MODULE;
	leaf.fp = UW_FP_LOST;
	(void)uw_sample_reg(k->s, a->perf[a->fp], &leaf.fp);
	leaf.exact = true;
	leaf.lr = 0;
	if (a->ra_same_is_live && uw_sample_reg(k->s, a->perf[a->ra], &leaf.lr))
		leaf.lr &= k->ra_mask;
	if (code_step(&leaf, r, &f) != UW_GOES_ON)
		return UW_NO_MODULE;
	*k = leaf;
	return UW_GOES_ON;
}

int uw_guess(struct uw_walk *k, const struct uw_map *map, struct uw_rule r,
	     struct uw_memo_frame *f)
{
	struct caller c = {0};
	*f = (struct uw_memo_frame){.ra_slot = -1, .fp_slot = UW_SLOT_KEEP, .edge = UW_EDGE_NONE};
	if (k->exact && new_thread(k, map))
		return UW_END;
	r = own_rule(k, map, r);
	if (r.kind == UW_RULE_END)
		return UW_END;
	int rc = code_step(k, r, f);
	if (rc != NOT_SO)
		return rc;
	if (k->exact)
		return interrupted(k, map);
	if (python_trampoline(k, map, &c)) {
		f->edge = UW_EDGE_CALLEE;
		return take(k, &c, SP_C_scanned_frames);
	}
	if (frame_pointer(k, &c))
		return take(k, &c, SP_C_frame_pointer_frames);
	if (root_above(k, &c))
		return take(k, &c, SP_C_scanned_frames);
	return chain_end(k, map);
}

/* --- signals --- */

/* Offset from sp to a register's slot in the signal frame: struct ucontext of
 * arch/x86/include/uapi/asm (uc_mcontext at 40); struct rt_sigframe of arm64 (siginfo, then the
 * ucontext with its mcontext at 176). */
bool uw_sigcontext(const struct uw_walk *k, unsigned reg, uint64_t *out)
{
	static const uint8_t x86_64[] = {13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16};
	uint64_t slot;
	if (k->arch->machine == EM_X86_64 && reg < sizeof x86_64)
		slot = k->sp + 40 + x86_64[reg] * UINT64_C(8);
	else if (k->arch->machine == EM_AARCH64 && reg < 33)
		slot = k->sp + 128 + 176 + 8 + reg * UINT64_C(8);
	else
		return false;
	return uw_stack_u64(k, slot, out);
}

int uw_sigreturn_step(struct uw_walk *k)
{
	const struct uw_arch *a = k->arch;
	uint64_t pc, sp, fp, lr = 0;
	if (!uw_sigcontext(k, a->pc, &pc) || !uw_sigcontext(k, a->sp, &sp) ||
	    !uw_sigcontext(k, a->fp, &fp) || (a->ra_same_is_live && !uw_sigcontext(k, a->ra, &lr)))
		return k->stack_bytes ? UW_STACK_EXHAUSTED : UW_NO_STACK;
	k->pc = pc;
	k->sp = sp;
	k->fp = fp;
	k->lr = lr & k->ra_mask;
	k->exact = true;
	return UW_GOES_ON;
}
