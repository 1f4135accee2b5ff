/* A plugin that is loaded while the program runs: main, use_plugin, plug_entry, plug_hot. The
 * plugin's path is the second argument, or libplugin.so beside the program. */
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

#include "target.h"

typedef unsigned plug_fn(unsigned n);

NOINLINE unsigned use_plugin(plug_fn *entry, unsigned n)
{
	return keep(entry(n)) + 1;
}

int main(int argc, char **argv)
{
	unsigned ms = target_ms(argc, argv, 600), x = 0;
	char path[4096];
	void *plugin;
	plug_fn *entry = NULL;

	if (argc > 2)
		snprintf(path, sizeof(path), "%s", argv[2]);
	else
		snprintf(path, sizeof(path), "%s/libplugin.so", dirname(strdup(argv[0])));
	plugin = dlopen(path, RTLD_NOW);
	if (plugin)
		entry = (plug_fn *)dlsym(plugin, "plug_entry");
	if (!entry) {
		fprintf(stderr, "dlopen: %s\n", dlerror());
		return 1;
	}
	while (target_cpu_ms() < ms)
		x += use_plugin(entry, 400000);
	return x == 1;
}
