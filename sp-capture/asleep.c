#include "asleep.h"

#include <stdlib.h>

#include "recover.h"
#include "switches.h"
#include "tasks.h"

/* The bits of a letter of /proc/PID/stat (include/linux/sched.h), 0: it does not wait. Who wants a
 * CPU cannot be told from who has it. */
static uint32_t state_bits(char letter)
{
	static const struct {
		char letter;
		uint32_t bits;
	} known[] = {{'S', 1}, {'D', 2}, {'T', 4}, {'t', 8}, {'P', 0x40}, {'I', 0x402}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].letter == letter)
			return known[i].bits;
	return 0;
}

static void look_at(struct cap_session *s, int32_t pid, int32_t tid, uint64_t since_ns)
{
	struct sp_stat st;
	uint32_t state = sp_stat_read(pid, tid, &st) ? state_bits(st.state) : 0;
	if (!state || (s->o->n_tids && sp_map64_get(&s->by_tid, (uint32_t)tid) == SP_NOT_FOUND))
		return;
	if (s->bpf)
		cap_bpf_asleep(s->bpf, pid, tid, state, since_ns);
	else
		cap_switches_asleep(&s->emit, pid, tid, state, since_ns);
}

static void look_at_process(struct cap_session *s, int32_t pid, uint64_t since_ns)
{
	int32_t *tids = NULL;
	size_t n = 0, cap = 0;
	/* The launcher waits for us. */
	if (pid == s->launch.pid && cap_launch_is_suspended(&s->launch))
		return;
	if (sp_tasks_list(pid, &tids, &n, &cap, NULL) < 0)
		n = 0;
	for (size_t i = 0; i < n; i++)
		look_at(s, pid, tids[i], since_ns);
	free(tids);
}

void cap_asleep_process(struct cap_session *s, int32_t pid)
{
	look_at_process(s, pid, cap_now_ns());
}

void cap_asleep_all(struct cap_session *s)
{
	uint64_t drained_ns = cap_now_ns(), since_ns = drained_ns;
	if (s->bpf)
		since_ns = cap_bpf_since(s->bpf);
	else
		s->emit.waits.asleep_ns = since_ns;
	for (size_t i = 0; i < s->emit.procs.n; i++) {
		const struct cap_proc *q = s->emit.procs.procs[i];
		if (q && (!s->o->all || cap_scopes_keep(&s->system.scopes, q->scope)))
			look_at_process(s, q->pid, since_ns);
		cap_recover_keep_up(s, &drained_ns);
	}
	/* Their stacks, where they are not copied after the waits. */
	if (s->bpf && !cap_bpf_stacks_after(s->bpf))
		cap_bpf_parked(s->bpf);
}
