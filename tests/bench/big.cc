// A file that keeps a C++ compiler busy for a few seconds: the programs measured compile it.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

template <int N> struct Table {
	std::map<std::string, std::vector<double>> rows;
	std::unordered_map<int, std::set<std::string>> names;

	void fill(std::mt19937 &random)
	{
		std::uniform_real_distribution<double> value(0, N + 1);
		for (int i = 0; i < 100 * (N + 1); i++) {
			auto &row = rows[std::to_string(i % (N + 3))];
			row.push_back(value(random));
			std::sort(row.begin(), row.end(),
				  [](double a, double b) { return a > b + N; });
			names[i].insert("row " + std::to_string(i));
		}
	}

	double sum(const std::string &pattern) const
	{
		std::regex match(pattern);
		double total = 0;
		for (const auto &row : rows) {
			if (std::regex_search(row.first, match))
				total += std::accumulate(row.second.begin(), row.second.end(), 0.0);
		}
		return total;
	}
};

template <int N> double all(std::mt19937 &random)
{
	Table<N> table;
	table.fill(random);
	if constexpr (N > 0)
		return table.sum("[0-9]*" + std::to_string(N)) + all<N - 1>(random);
	else
		return table.sum(".*");
}

int main()
{
	std::mt19937 random(1);
	std::cout << all<12>(random) << "\n";
}
