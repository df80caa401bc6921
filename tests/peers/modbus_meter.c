/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A power meter that answers over Modbus/TCP, by libmodbus' own server: modbus_meter PORT FILE.
 * FILE holds lines "input|holding ADDRESS VALUE" with 16-bit values; it is read again before each
 * answer, so that a test may change it. "sleep MS" delays the answers, "drip MS" sends their bytes
 * that far apart, "refuse" answers with an exception, "hang-up" ends the connection.
 */
#include <errno.h>
#include <modbus.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct meter {
	modbus_mapping_t *map;
	int sleep_ms, drip_ms;
	bool refuse, hang_up;
};

static void load(struct meter *m, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[128], kind[16];
	int address, value;

	m->sleep_ms = m->drip_ms = 0;
	m->refuse = m->hang_up = false;
	while (f && fgets(line, sizeof(line), f)) {
		m->refuse = m->refuse || !strncmp(line, "refuse", 6);
		m->hang_up = m->hang_up || !strncmp(line, "hang-up", 7);
		sscanf(line, "sleep %d", &m->sleep_ms);
		sscanf(line, "drip %d", &m->drip_ms);
		if (sscanf(line, "%15s %d %i", kind, &address, &value) != 3 || address < 0 ||
			address > 65535)
			continue;
		if (!strcmp(kind, "input"))
			m->map->tab_input_registers[address] = (uint16_t)value;
		else if (!strcmp(kind, "holding"))
			m->map->tab_registers[address] = (uint16_t)value;
	}
	if (f)
		fclose(f);
}

/* The answer to a question for registers, all 0; false = the other side has closed the
 * connection. */
static bool drip(int fd, const uint8_t *query, int ms)
{
	uint8_t bytes = (uint8_t)(2 * query[11]);
	uint8_t answer[MODBUS_TCP_MAX_ADU_LENGTH] = {
		query[0], query[1], 0, 0, 0, (uint8_t)(bytes + 3), query[6], query[7], bytes};

	for (int i = 0; i < bytes + 9; i++) {
		usleep((useconds_t)ms * 1000);
		if (send(fd, &answer[i], 1, MSG_NOSIGNAL) != 1)
			return false;
	}
	return true;
}

static void serve(modbus_t *line, struct meter *m, const char *path)
{
	uint8_t query[MODBUS_TCP_MAX_ADU_LENGTH];

	for (;;) {
		int n = modbus_receive(line, query);

		if (n < 0)
			return;
		load(m, path);
		usleep((useconds_t)m->sleep_ms * 1000);
		if (m->hang_up || (m->drip_ms && !drip(modbus_get_socket(line), query, m->drip_ms)))
			return;
		if (m->drip_ms)
			continue;
		if (m->refuse)
			modbus_reply_exception(
				line, query, MODBUS_EXCEPTION_SLAVE_OR_SERVER_FAILURE);
		else
			modbus_reply(line, query, n, m->map);
	}
}

int main(int argc, char **argv)
{
	struct meter m = {.map = modbus_mapping_new(0, 0, 65536, 65536)};
	modbus_t *line =
		argc == 3 ? modbus_new_tcp("127.0.0.1", (int)strtol(argv[1], NULL, 10)) : NULL;
	int listening = line ? modbus_tcp_listen(line, 4) : -1;

	if (!m.map || listening < 0) {
		fprintf(stderr, "modbus_meter: %s\n", modbus_strerror(errno));
		return 1;
	}
	puts("ready");
	fflush(stdout);
	alarm(120); /* ends this process when its test was killed */
	for (;;) {
		if (modbus_tcp_accept(line, &listening) < 0)
			return 1;
		serve(line, &m, argv[2]);
		modbus_close(line);
	}
}
