/* go-image: a stripped Go program by hand (tests/unit/go_image.h) to stdout, to begin fuzzing with.
 */
#include <stdio.h>

#include "../unit/go_image.h"

int main(void)
{
	static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x49, 0x8b, 0x66, 0x38};
	struct go_image m;
	go_new(&m, &(struct go_options){EM_X86_64, .sections = true, .place = GO_IN_HEAD});
	int32_t a = go_file(&m, "/src/a.go");
	struct go_func f = {.size = 0x40, .name = "main.main"};
	f.pcsp = GO_LIST(&m, {0, 1}, {8, 0x3f}, {0, 0x40});
	f.pcfile = GO_LIST(&m, {a, 0x40});
	f.pcln = GO_LIST(&m, {20, 0x20}, {21, 0x40});
	f.inlined = GO_LIST(&m, {-1, 0x10}, {0, 0x20}, {-1, 0x40});
	f.tree = go_inlined(&m, "main.inner", 8);
	go_func(&m, &f);
	f = (struct go_func){.entry = 0x40, .size = 0x40, .name = "runtime.systemstack"};
	f.flags = 6; /* written by hand, writes sp */
	f.pcsp = m.funcs[0].pcsp;
	go_func(&m, &f);
	go_finish(&m);
	memcpy(m.data + GO_TEXT, code, 4);
	memcpy(m.data + GO_TEXT + 0x40, code, sizeof code);
	bool good = fwrite(m.data, 1, GO_SIZE, stdout) == GO_SIZE && fflush(stdout) == 0;
	free(m.data);
	return !good;
}
