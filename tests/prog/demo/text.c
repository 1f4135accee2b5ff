#include <string.h>

#include "spell.h"

const char *const dictionary[] = {
	"account",   "address",   "afternoon",  "animal",   "answer",   "autumn",    "balance",
	"basket",    "beautiful", "bicycle",    "blanket",  "bottle",   "breakfast", "bridge",
	"brother",   "building",  "butter",     "calendar", "candle",   "carpenter", "castle",
	"ceiling",   "chicken",   "chimney",    "circle",   "climate",  "coffee",    "colour",
	"concert",   "corner",    "cottage",    "country",  "daughter", "decision",  "delicious",
	"dentist",   "diamond",   "dictionary", "dinner",   "doctor",   "eleven",    "engine",
	"evening",   "factory",   "family",     "feather",  "festival", "finger",    "flower",
	"forest",    "fountain",  "friend",     "garden",   "gentle",   "glasses",   "grammar",
	"hammer",    "harbour",   "holiday",    "horizon",  "hospital", "husband",   "island",
	"jacket",    "journey",   "kitchen",    "ladder",   "language", "lantern",   "library",
	"machine",   "market",    "meadow",     "medicine", "mountain", "museum",    "necklace",
	"neighbour", "number",    "orchard",    "painting", "paper",    "pencil",    "picture",
	"pillow",    "pocket",    "quarter",    "question", "railway",  "recipe",    "river",
	"saddle",    "science",   "shadow",     "shoulder", "silence",  "station",   "stomach",
	"strange",   "student",   "sunshine",   "teacher",  "thunder",  "tomorrow",  "umbrella",
	"valley",    "village",   "violin",     "weather",  "window",   "winter",    "yesterday",
};
const size_t n_dictionary = sizeof(dictionary) / sizeof(dictionary[0]);

static unsigned next_random(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Change one letter of a word, as a hasty typist does. */
static void misspell(char *word, size_t len, unsigned *seed)
{
	word[next_random(seed) % len] = (char)('a' + next_random(seed) % 26);
}

size_t make_text(char *out, size_t size, size_t n_words, unsigned seed)
{
	size_t used = 0;

	for (size_t i = 0; i < n_words; i++) {
		const char *word = dictionary[next_random(&seed) % n_dictionary];
		size_t len = strlen(word);

		if (used + len + 1 > size)
			break;
		memcpy(out + used, word, len);
		if (next_random(&seed) % 4 != 0)
			misspell(out + used, len, &seed);
		out[used + len] = ' ';
		used += len + 1;
	}
	return used;
}
