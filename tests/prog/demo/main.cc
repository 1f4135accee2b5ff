// A spell checker: the main thread writes pages of hasty text, three threads correct them. The
// time goes into comparing every word with the whole dictionary: Checker::closest, and in it
// edit_distance, where min3 and substitution_cost are inlined. A profile shows it at a glance.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "spell.h"

namespace spell
{

using Page = std::string;

// Pages on their way from the writer to the checkers, a few at a time.
class Queue
{
      public:
	void push(Page page)
	{
		std::unique_lock<std::mutex> lock(mutex_);
		room_.wait(lock, [this] { return pages_.size() < 8; });
		pages_.push_back(std::move(page));
		filled_.notify_one();
	}

	bool pop(Page &page)
	{
		std::unique_lock<std::mutex> lock(mutex_);
		filled_.wait(lock, [this] { return !pages_.empty() || closed_; });
		if (pages_.empty())
			return false;
		page = std::move(pages_.front());
		pages_.pop_front();
		room_.notify_one();
		return true;
	}

	void close()
	{
		std::lock_guard<std::mutex> lock(mutex_);
		closed_ = true;
		filled_.notify_all();
	}

      private:
	std::mutex mutex_;
	std::condition_variable room_, filled_;
	std::deque<Page> pages_;
	bool closed_ = false;
};

class Checker
{
      public:
	void check(const Page &page)
	{
		for_each_word(page,
			      [this](const std::string &word) { corrected_[closest(word)]++; });
	}

	size_t words() const
	{
		size_t sum = 0;
		for (const auto &entry : corrected_)
			sum += entry.second;
		return sum;
	}

      private:
	template <typename F> static void for_each_word(const Page &page, F visit)
	{
		size_t begin = 0, end;
		while ((end = page.find(' ', begin)) != Page::npos) {
			visit(page.substr(begin, end - begin));
			begin = end + 1;
		}
	}

	// Every word of the dictionary, each time: this is what a profile should make one mend.
	__attribute__((noinline, noclone)) std::string closest(const std::string &word) const
	{
		const char *best = "";
		unsigned best_distance = ~0u;
		for (size_t i = 0; i < n_dictionary; i++) {
			unsigned d = edit_distance(word.data(), word.size(), dictionary[i],
						   std::strlen(dictionary[i]));
			if (d < best_distance) {
				best_distance = d;
				best = dictionary[i];
			}
		}
		return best;
	}

	std::unordered_map<std::string, size_t> corrected_;
};

double cpu_seconds()
{
	timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

void work(Queue &queue, Checker &checker, int number)
{
	char name[16];
	std::snprintf(name, sizeof(name), "checker-%d", number);
	pthread_setname_np(pthread_self(), name);
	Page page;
	while (queue.pop(page))
		checker.check(page);
}

} // namespace spell

int main(int argc, char **argv)
{
	using namespace spell;
	const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
	Queue queue;
	std::vector<Checker> checkers(3);
	std::vector<std::thread> threads;

	for (size_t i = 0; i < checkers.size(); i++)
		threads.emplace_back(work, std::ref(queue), std::ref(checkers[i]),
				     static_cast<int>(i) + 1);
	for (unsigned seed = 1; cpu_seconds() < seconds; seed++) {
		Page page(4096, '\0');
		page.resize(make_text(&page[0], page.size(), 500, seed));
		queue.push(std::move(page));
	}
	queue.close();
	size_t words = 0;
	for (size_t i = 0; i < checkers.size(); i++) {
		threads[i].join();
		words += checkers[i].words();
	}
	std::printf("%zu words checked\n", words);
	return 0;
}
