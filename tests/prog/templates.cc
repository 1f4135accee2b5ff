// C++ with templates, a lambda, an inlined chain and an exception that unwinds through it:
// main, shop::run, shop::Walk<3> .. Walk<0>::go, shop::price (where the time goes), into which
// shop::scale and shop::Mixer<int>::mix are inlined, one into the other.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "target.h"

namespace shop
{

template <typename T> struct Mixer {
	T state;
	inline __attribute__((always_inline)) T mix(T v)
	{
		for (int i = 0; i < 20; i++)
			state = state * 1664525 + v; // mix line
		return state;
	}
};

static inline __attribute__((always_inline)) unsigned scale(Mixer<unsigned> &m, unsigned i)
{
	return m.mix(i ^ 13u); // scale line
}

NOINLINE unsigned price(const std::string &name, unsigned n)
{
	Mixer<unsigned> m{static_cast<unsigned>(name.size())};
	unsigned sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += scale(m, i); // price line
	if (sum == 0xfffffffeu)
		throw std::runtime_error(name);
	return keep(sum);
}

template <int Depth> struct Walk {
	template <typename F> NOINLINE static unsigned go(F f, const std::string &name)
	{
		return keep(Walk<Depth - 1>::go(f, name)) + 1;
	}
};

template <> struct Walk<0> {
	template <typename F> NOINLINE static unsigned go(F f, const std::string &name)
	{
		return keep(f(name)) + 1;
	}
};

NOINLINE unsigned run(unsigned n)
{
	return keep(Walk<3>::go([n](const std::string &s) { return price(s, n); }, "apples"));
}

} // namespace shop

int main(int argc, char **argv)
{
	unsigned ms = target_ms(argc, argv, 600), x = 0;
	while (target_cpu_ms() < ms) {
		try {
			x += shop::run(20000);
		} catch (const std::runtime_error &e) {
			std::puts(e.what());
		}
	}
	return x == 1;
}
