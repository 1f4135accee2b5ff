/* The demo program: a spell checker that is slower than it should be. */
#ifndef SPELL_H
#define SPELL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Edits that turn a into b (Levenshtein's distance). */
unsigned edit_distance(const char *a, size_t a_len, const char *b, size_t b_len);

/* Fill out with a text of n words, most of them misspelt, separated by spaces. Returns its length.
 */
size_t make_text(char *out, size_t size, size_t n_words, unsigned seed);

/* The built-in dictionary. */
extern const char *const dictionary[];
extern const size_t n_dictionary;

#ifdef __cplusplus
}
#endif

#endif
