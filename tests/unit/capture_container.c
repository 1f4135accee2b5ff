/* Control groups: the mount of cgroup v2, the container that a path tells, the line of
 * /proc/PID/cgroup that counts.
 * unit: sp-capture/container.c
 * unit: sp-capture/cgroup.c */
#include <string.h>

#include "../../sp-capture/cgroup.h"
#include "../../sp-capture/container.h"
#include "tap.h"

#define ID2 "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"
#define ID "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static bool is(const char *got, size_t len, const char *want)
{
	return len == strlen(want) && !memcmp(got ? got : "", want, len);
}

static void path(const char *text, const char *runtime, const char *id, const char *name)
{
	struct cap_container c = {0};
	bool found = cap_container_path(text, strlen(text), &c);
	char plain[64];
	size_t n = cap_container_name(&c, plain, sizeof plain);
	tap_ok(found == (runtime != NULL) &&
		   (!found || (!strcmp(c.runtime, runtime) && is(c.id, c.id_len, id) &&
			       is(plain, n, name))),
	   text);
}

static void proc(const char *text, const char *want)
{
	const char *at = "";
	size_t len = 0;
	bool found = cap_container_of_proc(text, strlen(text), &at, &len);
	tap_ok(found == (want != NULL) && (!found || is(at, len, want)), want ? want : "none");
}

int main(void)
{
	char mount[64];
	static const char info[] = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
				   "41 31 0:38 / /a\\040b rw,relatime - cgroup2 cgroup2 rw\n"
				   "42 31 0:39 / /v1 rw,relatime - cgroup cgroup rw,memory\n"
				   "43 31 0:40 / /v1b rw,relatime - cgroup cgroup rw,cpu\n";
	const char *end = info + sizeof info - 1;
	path("/system.slice/docker-" ID ".scope", "docker", ID, "");
	path("/docker/" ID, "docker", ID, "");
	path("/machine.slice/libpod-" ID ".scope/container", "podman", ID, "");
	path("/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope", "containerd", ID, "");
	path("/kubepods/burstable/pod1/" ID, "kubernetes", ID, "");
	path("/lxc.payload.web/init.scope", "lxc", "", "web");
	path("/lxc/web", "lxc", "", "web");
	path("/machine.slice/machine-web.scope", "machine", "", "web");
	path("/machine.slice/machine-my\\x2dbox.scope/payload", "machine", "", "my-box");
	path("/kubepods/besteffort/podab12-34/" ID, "kubernetes", ID, "");
	path("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice/cri-containerd-" ID ".scope",
	     "containerd", ID, "");
	path("/kubepods.slice/kubepods-pod1.slice/crio-" ID ".scope/container", "cri-o", ID, "");
	path("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope/container",
	     "podman", ID, "");
	path("/user.slice/user-1000.slice/user@1000.service/app.slice/docker-" ID ".scope", "docker", ID, "");
	path("/libpod_parent/libpod-" ID, "podman", ID, "");
	path("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" ID, "containerd", ID, "");
	path("/system.slice:docker:" ID, "docker", ID, "");
	path("/a:b:0011", NULL, "", "");
	path("/docker/" ID "/docker/" ID2, "docker", ID2, "");
	path("/ecs/0011/" ID, "container", ID, "");
	path("/machine.slice/systemd-nspawn@web.service/payload", "nspawn", "", "web");
	path("/machine.slice/libpod-conmon-" ID ".scope", NULL, "", "");
	path("/system.slice/nginx.service", NULL, "", "");
	path("/system.slice/docker-0011.scope", NULL, "", "");
	path("/", NULL, "", "");
	proc("9:name=systemd:/\n0::/user.slice/a:b\n", "/user.slice/a:b");
	proc("4:memory:/docker/" ID "\n0::/\n", "/docker/" ID);
	proc("4:memory:/docker/" ID "\n0::/system.slice/containerd.service\n", "/docker/" ID);
	proc("0::/docker/" ID2 "\n4:memory:/docker/" ID "\n", "/docker/" ID2);
	proc("4:memory:/x\n0::/y\n", "/y");
	proc("4:memory:/x\n0::/\n", NULL);
	proc("", NULL);
	proc("0::", NULL);
	tap_ok(cap_cgroup_mount(info, end, "cgroup2", mount, sizeof mount) && !strcmp(mount, "/a b"),
	   "the mount point, its blank unescaped");
	tap_ok(!cap_cgroup_mount(info, info + 40, "cgroup2", mount, sizeof mount), "no cgroup v2");
	tap_ok(!cap_cgroup_mount(info, end, "cgroup2", mount, 3), "a buffer that is too short");
	const char *at = cap_cgroup_mount(info, end, "cgroup", mount, sizeof mount);
	tap_ok(at && !strcmp(mount, "/v1") &&
		   cap_cgroup_mount(at, end, "cgroup", mount, sizeof mount) == end &&
		   !strcmp(mount, "/v1b"),
	   "those of v1, one after the other");
	return tap_done();
}
