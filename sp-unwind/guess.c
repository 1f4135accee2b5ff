/* Steps without CFI. Whatever is taken here was validated: it lies in executable memory, and
 * where the code's bytes can be read, a call stands before it. */
#include "golang.h"
#include "walker.h"

/* --- calls --- */

/* Bytes of a call through memory or a register (FF /2), from its first prefix on; 0: none.
 * Intel SDM, volume 2, chapter 2.1 (ModRM and SIB). */
static unsigned indirect_call(const uint8_t *p, unsigned n)
{
	unsigned i = 0;
	if (i < n && p[i] == 0x3e) /* notrack */
		i++;
	if (i < n && (p[i] & 0xf0) == 0x40) /* REX */
		i++;
	if (i + 2 > n || p[i] != 0xff || (p[i + 1] >> 3 & 7) != 2)
		return 0;
	uint8_t mod = p[i + 1] >> 6, rm = p[i + 1] & 7;
	i += 2;
	if (mod == 3)
		return i;
	uint8_t base = rm;
	if (rm == 4) {
		if (i == n)
			return 0;
		base = p[i++] & 7;
	}
	if (mod == 1)
		i += 1;
	else if (mod == 2 || (mod == 0 && base == 5))
		i += 4;
	return i;
}

#define LONGEST_CALL 9

/* Files whose code was blanked out (for a symbol server, for a test) have zeros there, which are
 * no instructions that return: nothing can be said about calls. */
static bool blank(const uint8_t *p, unsigned n)
{
	while (n && !p[n - 1])
		n--;
	return n == 0;
}

static struct uw_call x86_call(const struct uw_module *m, uint64_t svma)
{
	const uint8_t *p = NULL;
	unsigned n = LONGEST_CALL + 1;
	while (!p && --n >= 2)
		p = uw_module_bytes(m, svma - n, n);
	if (!p || blank(p, n))
		return (struct uw_call){UW_CALL_UNKNOWN, 0};
	if (n >= 5 && p[n - 5] == 0xe8)
		return (struct uw_call){UW_CALL_DIRECT, (int32_t)sp_get32(p + n - 4)};
	for (unsigned len = 2; len <= n; len++)
		if (indirect_call(p + n - len, len) == len)
			return (struct uw_call){UW_CALL_INDIRECT, 0};
	return (struct uw_call){UW_CALL_NONE, 0};
}

static struct uw_call arm64_call(const struct uw_module *m, uint64_t svma)
{
	const uint8_t *p = uw_module_bytes(m, svma - 4, 4);
	if (svma & 3)
		return (struct uw_call){UW_CALL_NONE, 0};
	if (!p || blank(p, 4))
		return (struct uw_call){UW_CALL_UNKNOWN, 0};
	uint32_t insn = sp_get32(p);
	if ((insn & 0xfc000000) == 0x94000000) /* BL: 26 bits of words, from the instruction on */
		return (struct uw_call){UW_CALL_DIRECT, ((int32_t)(insn << 6) >> 4) - 4};
	/* BLR, and BLRAA… with a signature */
	if ((insn & 0xfffffc1f) == 0xd63f0000 || (insn & 0xfefff800) == 0xd63f0800)
		return (struct uw_call){UW_CALL_INDIRECT, 0};
	return (struct uw_call){UW_CALL_NONE, 0};
}

/* What stands before a return address of a module, from the cache or its bytes. */
static struct uw_call module_call(struct uw_walk *k, const struct uw_map *map, uint64_t ra)
{
	struct uw_call call;
	if (uw_call_cached(k->w, map, ra, &call))
		return call;
	const struct uw_module *m = map->module;
	uint64_t svma = ra - map->bias, from_base = svma - m->base_svma;
	call = k->arch->machine == EM_AARCH64 ? arm64_call(m, svma) : x86_call(m, svma);
	/* A signal handler returns to a trampoline that nobody called, a goroutine to its root. */
	if (call.kind == UW_CALL_NONE &&
	    (uw_rule_get(k->w, map, ra - 1).flags & UW_RULE_SIGNAL || uw_go_root(m, svma)))
		call.kind = UW_CALL_INDIRECT;
	if (from_base <= UINT32_MAX)
		uw_cache_add(uw_cache_set(k->w, m, from_base),
			     (struct uw_cache_slot){.key = UW_CACHE_CALL | (uint64_t)m->id << 32 |
							   from_base,
						    .call = call});
	return call;
}

static struct uw_call call_before(struct uw_walk *k, uint64_t ra, const struct uw_map **map)
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
	c->call = call_before(k, c->pc, &c->map);
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

/* Where the function at pc begins, which has no CFI: at a multiple of 16, behind int3 that fill the
 * space. So do V8's builtins, in node's own code, and Go's functions; a single int3 stands behind
 * calls that do not return. 0: it can't be seen. */
#define START_BACK 4096u
static uint64_t function_start(const struct uw_walk *k, const struct uw_map *map)
{
	if (!map || !map->module || k->arch->machine != EM_X86_64)
		return 0;
	uint64_t svma = k->pc - map->bias;
	for (uint64_t a = svma & ~UINT64_C(15); svma - a < START_BACK; a -= 16) {
		const uint8_t *p = uw_module_bytes(map->module, a - 2, 3);
		if (!p)
			break;
		if (p[0] == 0xcc && p[1] == 0xcc && p[2] != 0xcc)
			return a + map->bias;
	}
	return 0;
}

/* How far pc is behind the target of a caller's direct call, if that may be the function at pc. */
#define FUNCTION_MAX (UINT64_C(1) << 20)
static uint64_t into(const struct uw_walk *k, const struct caller *c, uint64_t start)
{
	uint64_t at = k->pc - (c->pc + (uint64_t)(int64_t)c->call.rel);
	uint64_t max = start ? k->pc - start : FUNCTION_MAX;
	return c->call.kind == UW_CALL_DIRECT && at <= max ? at : UINT64_MAX;
}

/* Of two possible callers of the function at pc: a direct call's target is that function's
 * beginning, so that the nearer one below pc is the right one. */
static bool nearer(const struct uw_walk *k, const struct caller *a, const struct caller *b,
		   uint64_t start)
{
	return into(k, a, start) < into(k, b, start);
}

/* Of a return address at sp and one in the frame record: whether the first is the caller's. JIT
 * code can't be read, so that no call is seen there; yet an address of it at sp was the return
 * address in each of 13 cases that node 20 gave in 6,116 samples, all in prologues. */
static bool top_is_nearer(const struct uw_walk *k, const struct uw_map *map,
			  const struct caller *top, const struct caller *fp)
{
	static const uint8_t push[] = {0x55, 0x48, 0x89, 0xe5}; /* push %rbp; mov %rsp,%rbp */
	uint64_t start = function_start(k, map);
	const uint8_t *p =
		start ? uw_module_bytes(map->module, start - map->bias, sizeof push) : NULL;
	const uint8_t *at = p ? uw_module_bytes(map->module, k->pc - map->bias, 1) : NULL;
	if (at && !memcmp(p, push, sizeof push)) /* with a frame but for its first and last ones */
		return k->pc - start < sizeof push || *at == 0xc3 || *at == 0xc2;
	if (fp->call.kind != UW_CALL_UNKNOWN)
		return !nearer(k, fp, top, start);
	/* What lies at sp may be an old address; a link register is not old. */
	return (map && map->module) || k->arch->machine == EM_AARCH64 ||
	       top->call.kind == UW_CALL_UNKNOWN || nearer(k, top, fp, start);
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
			return fde.begin == a && uw_rule_make(map->module, a, NULL).kind == UW_RULE_END;
	return false;
}

/* An interrupted function without CFI: in its first and last instructions, or when it has no
 * frame, its return address is at sp (in the link register); else there is a frame pointer. */
static int interrupted(struct uw_walk *k, const struct uw_map *map)
{
	struct caller top = {0}, fp = {0};
	bool has_fp = frame_pointer(k, &fp), has_top;
	unsigned word = k->arch->word_bytes;
	uint64_t saved;
	if (new_thread(k, map))
		return UW_END;
	if (k->arch->machine == EM_AARCH64) {
		top = (struct caller){.pc = k->lr, .sp = k->sp, .fp = k->fp};
		if (k->lr)
			top.call = call_before(k, k->lr, &top.map);
		/* A link register that points into the function itself is left from a call that
		 * has returned. */
		has_top = top.call.kind != UW_CALL_NONE && (!has_fp || k->lr - k->pc + 4096 > 8192);
	} else {
		has_top = caller_at(k, k->sp, &top);
	}
	if (has_top && (!has_fp || top_is_nearer(k, map, &top, &fp)))
		return take(k, &top, SP_C_scanned_frames);
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
	if (!fp)
		return UW_END; /* the ABI's mark of the outermost frame */
	if (fp != UW_FP_LOST && !(fp & (word - 1)) && fp >= k->sp) {
		if (uw_stack_word(k, fp + word, &ra) && !ra)
			return UW_END;
		/* Plausible, but behind the copy. */
		if (fp >= end - (k->stack_bytes ? word : 0) && fp - end < UINT64_C(8) << 20)
			return k->stack_bytes ? UW_STACK_EXHAUSTED : UW_NO_STACK;
	}
	if (!map || !(map->module || map->flags & UW_MAP_ANON))
		return UW_NO_MODULE;
	return UW_NO_CFI;
}

int uw_guess(struct uw_walk *k, const struct uw_map *map, bool *keeps)
{
	struct caller c = {0};
	*keeps = false;
	if (k->exact)
		return interrupted(k, map);
	if (python_trampoline(k, map, &c)) {
		*keeps = true;
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
