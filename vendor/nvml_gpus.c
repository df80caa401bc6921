/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs there are and which of them belong to this job: CUDA_VISIBLE_DEVICES, else Slurm's
 * list, else a container's. A device cgroup needs no word here: the driver does not show what it
 * closes.
 */
#include "nvml.h"
#include "nvml_gpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 4096

static void describe(struct jm_nvml *nvml, struct jm_nvml_gpu *g)
{
	struct jm_nvml_pci pci = {0};
	unsigned int number;
	int major, minor;

	if (!nvml->name || nvml->name(g->handle, g->name, sizeof(g->name)))
		snprintf(g->name, sizeof(g->name), "NVIDIA GPU");
	snprintf(g->label, sizeof(g->label), "GPU %d %.50s", g->index, g->name);
	g->minor = -1;
	if (nvml->minor && !nvml->minor(g->handle, &number))
		g->minor = (int)number;
	if (nvml->architecture && !nvml->architecture(g->handle, &number) && number < 1000)
		g->architecture = number;
	if (nvml->capability && !nvml->capability(g->handle, &major, &minor))
		g->capability = 10 * major + minor;
	if (nvml->pci && !nvml->pci(g->handle, &pci))
		snprintf(g->bus_id, sizeof(g->bus_id), "%s", pci.bus_id);
}

/* A GPU without an available handle is ignored: it is lost, or belongs to another job. */
static int list(struct jm_nvml *nvml, struct jm_nvml_gpus *gpus, struct jm_err *err)
{
	unsigned int n = 0;
	int rc = nvml->count(&n);

	if (rc)
		return jm_err_set(err, jm_nvml_code(rc),
			"NVML cannot count the GPUs: %s; see the output of nvidia-smi.",
			jm_nvml_text(nvml, rc));
	gpus->gpu = calloc(n + 1, sizeof(*gpus->gpu));
	if (!gpus->gpu)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %u GPUs.", n);
	for (unsigned int i = 0; i < n; i++) {
		struct jm_nvml_gpu *g = &gpus->gpu[gpus->n];

		g->index = (int)i;
		rc = nvml->by_index(i, &g->handle);
		if (!rc)
			rc = nvml->uuid(g->handle, g->uuid, sizeof(g->uuid));
		if (rc) {
			snprintf(gpus->note, sizeof(gpus->note), "GPU %u is ignored: %s.", i,
				jm_nvml_text(nvml, rc));
			memcpy(gpus->left_out, gpus->note, sizeof(gpus->note));
			*g = (struct jm_nvml_gpu){0};
			continue;
		}
		describe(nvml, g);
		gpus->n++;
	}
	if (gpus->n)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"The NVIDIA driver reports no GPU%s%s; see the output of nvidia-smi.",
		*gpus->note ? ": " : "", gpus->note);
}

static bool several_kinds(const struct jm_nvml_gpus *gpus)
{
	for (int i = 1; i < gpus->n; i++)
		if (strcmp(gpus->gpu[i].name, gpus->gpu[0].name) != 0)
			return true;
	return false;
}

/* CUDA puts the fastest first unless told otherwise; what it takes for fast it does not say. */
static void note_order(struct jm_nvml_gpus *gpus)
{
	const char *order = secure_getenv("CUDA_DEVICE_ORDER");

	if ((order && !strcmp(order, "PCI_BUS_ID")) || !several_kinds(gpus))
		return;
	snprintf(gpus->note, sizeof(gpus->note),
		"The GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: the numbers in "
		"CUDA_VISIBLE_DEVICES are taken in the order of the PCI bus, as nvidia-smi counts; "
		"use UUIDs to be sure.");
}

static struct jm_nvml_gpu *by_handle(struct jm_nvml_gpus *gpus, jm_nvml_device handle)
{
	for (int i = 0; i < gpus->n; i++)
		if (gpus->gpu[i].handle == handle)
			return &gpus->gpu[i];
	return NULL;
}

/* The GPU that a slice "MIG-..." belongs to. */
static struct jm_nvml_gpu *parent_of(
	struct jm_nvml *nvml, struct jm_nvml_gpus *gpus, const char *uuid)
{
	jm_nvml_device mig, parent;

	if (!nvml->by_uuid || !nvml->parent_of_mig || nvml->by_uuid(uuid, &mig) ||
		nvml->parent_of_mig(mig, &parent))
		return NULL;
	snprintf(gpus->note, sizeof(gpus->note),
		"%.60s is a slice of a GPU: power and limit are those of the whole GPU, including "
		"what other processes run on it.",
		uuid);
	return by_handle(gpus, parent);
}

/* One word of a list: a number (CUDA's, or of /dev/nvidiaN) or the beginning of a UUID. */
static struct jm_nvml_gpu *find(
	struct jm_nvml *nvml, struct jm_nvml_gpus *gpus, const char *word, bool by_minor)
{
	struct jm_nvml_gpu *hit = NULL;
	/* digits alone: "-0" or "+1" are no GPU */
	bool is_number = *word && !word[strspn(word, "0123456789")];
	long number = is_number ? strtol(word, NULL, 10) : -1;

	if (!strncmp(word, "MIG-", 4))
		return parent_of(nvml, gpus, word);
	for (int i = 0; i < gpus->n; i++) {
		struct jm_nvml_gpu *g = &gpus->gpu[i];
		bool same = is_number ? number == (by_minor && g->minor >= 0 ? g->minor : i)
				      : !strncmp(g->uuid, word, strlen(word));

		if (!same)
			continue;
		if (hit) /* a prefix of two ids is not valid, as with CUDA */
			return NULL;
		hit = g;
	}
	return hit;
}

/* Marks what the list names. As in CUDA, the first word that names nothing ends it. */
static void apply(struct jm_nvml *nvml, struct jm_nvml_gpus *gpus, const char *words, bool by_minor)
{
	char copy[LIST_MAX], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *w = strtok_r(copy, ", ", &save); w; w = strtok_r(NULL, ", ", &save)) {
		struct jm_nvml_gpu *g = find(nvml, gpus, w, by_minor);

		if (!g)
			break;
		if (!g->allocated)
			g->number = gpus->n_allocated++;
		g->allocated = true;
	}
}

/* "0-2,5" as "0,1,2,5". What is no range, or one of more GPUs than a node has, stays as it is. */
static void spell_out(const char *words, char *out, size_t size)
{
	const char *comma = "";
	FILE *f;

	memset(out, 0, size);
	f = fmemopen(out, size - 1, "w");
	if (!f)
		return;
	for (size_t n; *words; words += n + (words[n] == ',')) {
		unsigned int first, last;
		int end = 0;

		n = strcspn(words, ",");
		/* a sign, which %u takes, makes a number that is too large */
		if (sscanf(words, "%3u-%3u%n", &first, &last, &end) < 2 || (size_t)end != n ||
			last < first || last > 999) {
			fprintf(f, "%s%.*s", comma, (int)n, words);
			comma = ",";
		} else {
			for (; first <= last; first++, comma = ",")
				fprintf(f, "%s%u", comma, first);
		}
	}
	fclose(f);
}

static int count_words(const char *words)
{
	int n = *words != '\0';

	for (; *words; words++)
		n += *words == ',';
	return n;
}

static void say_why(struct jm_nvml_gpus *gpus, const char *variable, const char *words)
{
	snprintf(gpus->why, sizeof(gpus->why), "%s=%.100s", variable, words);
}

static bool by_cuda(struct jm_nvml *nvml, struct jm_nvml_gpus *gpus)
{
	static const char name[] = "CUDA_VISIBLE_DEVICES";
	const char *words = secure_getenv(name);

	if (!words)
		return false;
	note_order(gpus);
	say_why(gpus, name, words);
	apply(nvml, gpus, words, false);
	return true;
}

/* Where the job's cgroup hides the others already, the numbers mean nothing. */
static bool by_slurm(struct jm_nvml *nvml, struct jm_nvml_gpus *gpus, const char *name)
{
	const char *words = secure_getenv(name);
	char numbers[LIST_MAX];

	if (!words || !*words)
		return false;
	spell_out(words, numbers, sizeof(numbers));
	if (count_words(numbers) >= gpus->n)
		return false;
	say_why(gpus, name, words);
	apply(nvml, gpus, numbers, true);
	return true;
}

static bool by_container(struct jm_nvml *nvml, struct jm_nvml_gpus *gpus)
{
	static const char name[] = "NVIDIA_VISIBLE_DEVICES";
	const char *words = secure_getenv(name);

	if (!words || !*words || !strcmp(words, "all") || !strcmp(words, "none") ||
		!strcmp(words, "void") || count_words(words) >= gpus->n)
		return false;
	say_why(gpus, name, words);
	apply(nvml, gpus, words, false);
	return true;
}

static void allocate(struct jm_nvml *nvml, struct jm_nvml_gpus *gpus)
{
	if (by_cuda(nvml, gpus) || by_slurm(nvml, gpus, "SLURM_STEP_GPUS") ||
		by_slurm(nvml, gpus, "SLURM_JOB_GPUS") || by_container(nvml, gpus))
		return;
	for (int i = 0; i < gpus->n; i++) {
		gpus->gpu[i].allocated = true;
		gpus->gpu[i].number = i;
	}
	gpus->n_allocated = gpus->n;
}

int jm_nvml_gpus_open(struct jm_nvml *nvml, struct jm_nvml_gpus *ret, struct jm_err *err)
{
	struct jm_nvml_gpus gpus = {0};
	int rc = list(nvml, &gpus, err);

	if (rc) {
		jm_nvml_gpus_done(&gpus);
		return rc;
	}
	allocate(nvml, &gpus);
	*ret = gpus;
	return 0;
}

static bool is_kept(const struct jm_nvml_gpu *g, const char *numbers)
{
	for (const char *at = numbers; g->allocated && at; at = strchr(at, '+'), at += at != NULL)
		if (strtol(at, NULL, 10) == g->number)
			return true;
	return false;
}

int jm_nvml_gpus_keep(struct jm_nvml_gpus *gpus, const char *numbers, struct jm_err *err)
{
	int had = gpus->n_allocated;

	for (const char *at = numbers; at; at = strchr(at, '+'), at += at != NULL) {
		size_t digits = strspn(at, "0123456789");

		if (!digits || digits > 4 || (at[digits] && at[digits] != '+'))
			return jm_err_set(err, JM_EUSAGE,
				"'%s' does not name GPUs; write their numbers, as in nvml:1 or "
				"nvml:0+2.",
				numbers);
		if (strtol(at, NULL, 10) >= had)
			return jm_err_set(err, JM_ENOENT,
				"There is no GPU %.*s: this job has %d, counted from 0%s%s%s.",
				(int)digits, at, had, *gpus->why ? " (" : "", gpus->why,
				*gpus->why ? ")" : "");
	}
	gpus->n_allocated = 0;
	for (int i = 0; i < gpus->n; i++) {
		gpus->gpu[i].allocated = is_kept(&gpus->gpu[i], numbers);
		gpus->n_allocated += gpus->gpu[i].allocated;
	}
	return 0;
}

void jm_nvml_gpus_done(struct jm_nvml_gpus *gpus)
{
	free(gpus->gpu);
	*gpus = (struct jm_nvml_gpus){0};
}
