// cpp [CPU SECONDS]: four threads with what C++ programs do: sort, trees, regular expressions,
// exceptions, nested templates.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static double cpu_seconds()
{
	timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return double(t.tv_sec) + double(t.tv_nsec) / 1e9;
}

template <int N> struct Walk {
	template <class F> static unsigned go(unsigned x, F f) { return Walk<N - 1>::go(f(x), f) + N; }
};
template <> struct Walk<0> {
	template <class F> static unsigned go(unsigned x, F f) { return f(x); }
};

static unsigned sorted(std::mt19937 &r)
{
	std::vector<std::string> v;
	for (int i = 0; i < 3000; i++)
		v.push_back(std::to_string(r()));
	std::sort(v.begin(), v.end(), [](const auto &a, const auto &b) { return a > b; });
	return unsigned(v[v.size() / 2].size());
}

static unsigned mapped(std::mt19937 &r)
{
	std::map<unsigned, std::string> m;
	for (int i = 0; i < 3000; i++)
		m[r() % 2000] += "x";
	return unsigned(m.size());
}

static unsigned matched(std::mt19937 &r)
{
	static const std::regex re("([0-9]+)-(a|b)*c([0-9]+)");
	std::smatch m;
	std::string text = std::to_string(r()) + "-ababababc" + std::to_string(r());
	return std::regex_search(text, m, re) ? unsigned(m.size()) : 0;
}

static unsigned thrown(unsigned depth)
{
	if (depth == 0)
		throw std::runtime_error("bottom");
	return thrown(depth - 1) + 1;
}

static unsigned caught(unsigned depth)
{
	try {
		return thrown(depth);
	} catch (const std::exception &e) {
		return unsigned(e.what()[0]);
	}
}

static void worker(double wanted, unsigned seed, unsigned *out)
{
	std::mt19937 r(seed);
	while (cpu_seconds() < wanted) {
		*out += sorted(r) + mapped(r);
		for (int i = 0; i < 100; i++)
			*out += matched(r) + caught(20);
		*out += Walk<10>::go(r(), [&](unsigned x) { return x * 7 + unsigned(r() % 3); });
	}
}

int main(int argc, char **argv)
{
	double wanted = argc > 1 ? std::atof(argv[1]) : 2;
	unsigned out[4] = {};
	std::vector<std::thread> threads;
	for (unsigned i = 0; i < 4; i++)
		threads.emplace_back(worker, wanted / 4, i + 1, &out[i]);
	for (auto &t : threads)
		t.join();
	return out[0] == 1 && out[1] == 1;
}
