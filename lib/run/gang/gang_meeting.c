/* SPDX-License-Identifier: Apache-2.0 */
#include "gang_meeting.h"
#include "base/net/meet.h"
#include "base/net/tcp.h"
#include "base/text/json.h"

#include <stdio.h>
#include <string.h>

#define HEX (2 * JM_KEY_BYTES + 1)

static void to_hex(const unsigned char *bytes, char out[HEX])
{
	for (int i = 0; i < JM_KEY_BYTES; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static bool from_hex(const char *text, unsigned char *ret)
{
	bool whole = text && strlen(text) == HEX - 1;

	for (int i = 0; i < JM_KEY_BYTES && whole; i++) {
		unsigned int byte = 0;

		whole = sscanf(text + 2 * i, "%2x", &byte) == 1;
		ret[i] = (unsigned char)byte;
	}
	return whole;
}

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the job of a worker.");
}

json_t *jm_gang_meeting_new(const char *host, int *ret_door, struct jm_err *err)
{
	unsigned char seed[JM_KEY_BYTES];
	char hex[HEX], unused[JM_HOST_SIZE];
	json_t *meet;

	if (jm_key_new(seed, err) || jm_tcp_listen(host, 0, ret_door, err))
		return NULL;
	to_hex(seed, hex);
	meet = json_pack("{s:s, s:i, s:s}", "host", host, "port", jm_tcp_own_end(*ret_door, unused),
		"seed", hex);
	if (!meet)
		no_memory(err);
	return meet;
}

int jm_gang_meeting_key(json_t *gang, const unsigned char secret[JM_KEY_BYTES], struct jm_err *err)
{
	json_t *meet = json_object_get(gang, "meet");
	unsigned char seed[JM_KEY_BYTES], own[JM_KEY_BYTES];
	char hex[HEX];

	if (!from_hex(json_string_value(json_object_get(meet, "seed")), seed))
		return jm_err_set(err, JM_EFORMAT, "A job came without the seed of its key.");
	jm_keyed_hash(secret, seed, sizeof(seed), own);
	to_hex(own, hex);
	return json_object_set_new(meet, "key", json_string(hex)) ? no_memory(err) : 0;
}

bool jm_gang_meeting_read(const json_t *gang, int door, struct jm_meet *ret)
{
	const json_t *meet = json_object_get(gang, "meet");

	*ret = (struct jm_meet){.host = jm_json_text(meet, "host"),
		.port = (int)json_integer_value(json_object_get(meet, "port")),
		.door_fd = door,
		.differs = "The case"};
	return meet && from_hex(json_string_value(json_object_get(meet, "key")), ret->key);
}
