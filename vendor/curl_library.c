/* SPDX-License-Identifier: Apache-2.0 */
#include "curl_library.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX ((size_t)4 << 20)

int jm_curl_open(const struct jm_symbol *symbols, size_t n, void *calls, struct jm_err *err)
{
	const struct jm_library library = {
		.title = "libcurl",
		.variable = "JM_CURL_LIB",
		.names = {"libcurl.so.4", "libcurl-gnutls.so.4"},
		.mend = "install libcurl (Debian: libcurl4) or name the file in JM_CURL_LIB",
		.symbols = symbols,
		.n_symbols = n,
	};

	return jm_library_open(&library, calls, err);
}

size_t jm_curl_take(char *bytes, size_t size, size_t n, void *answer)
{
	struct jm_curl_answer *a = answer;
	char *grown;

	if (a->n + size * n > ANSWER_MAX)
		return 0;
	grown = realloc(a->text, a->n + size * n + 1);
	if (!grown)
		return 0;
	a->text = grown;
	memcpy(a->text + a->n, bytes, size * n);
	a->n += size * n;
	a->text[a->n] = '\0';
	return size * n;
}

json_t *jm_curl_object(const struct jm_curl_answer *answer)
{
	json_t *json = json_loadb(answer->text ? answer->text : "", answer->n, 0, NULL);

	if (json_is_object(json))
		return json;
	json_decref(json);
	return NULL;
}
