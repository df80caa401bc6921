/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a record that only trainings have. */
#include "result/record_keys_parts.h"

#include <limits.h>

static const char *const figure_words[] = {"top1", "loss", NULL};

const struct jm_key jm__weights_keys[] = {
	{TEXT("from", JM_KEY_NULL), .meaning = "file or folder of the start values"},
	{INTEGER("bytes", 0), .min = 0, .max = JM_KEY_HUGE, .unit = "B",
		.meaning = "of these on the device"},
	{POSITIVE("load_s", 0), .unit = "s",
		.meaning = "that reading, converting and sending them took"},
	{FLAG("new_top", 0),
		.meaning =
			"true: they have another number of classes, so the last layer began anew"},
	{TEXT("continued", JM_KEY_NULL), .meaning = "checkpoint that the run goes on from"},
	{COUNT("first_step", 0), .meaning = "steps that were done before this run"},
	{0},
};

const struct jm_key jm__loss_scale_keys[] = {
	{FLAG("dynamic", 0), .meaning = "true: it changes while training"},
	{NUMBER("first", 0), .min = 1, .max = JM_KEY_HUGE,
		.meaning = "what the loss is multiplied by in the first step"},
	{POSITIVE("last", 0), .meaning = "and after the last one"},
	{COUNT("steps_skipped", 0),
		.meaning = "that moved no parameter, because a gradient was not finite; warm-up "
			   "included"},
	{0},
};

const struct jm_key jm__evaluation_keys[] = {
	{COUNT("step", 0), .meaning = "after which it was, counted from the first of the warm-up"},
	{POSITIVE("samples", 0), .meaning = "that were held out: sequences, images or samples"},
	{NUMBER("loss", JM_KEY_NULL), .min = -JM_KEY_HUGE, .max = JM_KEY_HUGE,
		.meaning = "their mean; null = it was not finite"},
	{POSITIVE("accuracy", JM_KEY_OPTIONAL), .meaning = "of images: the share of right answers"},
	{COUNT("right", JM_KEY_OPTIONAL),
		.meaning = "right answers of these samples, with --eval-data"},
	{POSITIVE("seconds", 0), .unit = "s", .meaning = "on the device"},
	{0},
};

const struct jm_key jm__data_keys[] = {
	{TEXT("path", 0), .meaning = "of --data"},
	{TEXT("format", 0), .meaning = "folder, CIFAR, IDX, pictures with captions, conversations, "
				       "or fields of HDF5"},
	{COUNT("pictures", 0), .meaning = "for training; of HDF5: samples"},
	{COUNT("classes", JM_KEY_NULL), .meaning = "of the pictures; null: they have none"},
	{COUNT("epoch_steps", 0), .meaning = "steps for all pictures"},
	{INTEGER("decoded", 0), .min = 0, .max = JM_KEY_HUGE,
		.meaning = "pictures that were read, for evaluations as well, ahead of their use"},
	{TEXT("decoder", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "library that decoded JPEG files on the GPU (--decode device), with its "
			   "version; null = the host decoded all"},
	{INTEGER("decoded_gpu", JM_KEY_OPTIONAL), .min = 0, .max = JM_KEY_HUGE,
		.meaning = "of these pictures, by multiprocessors of the GPU"},
	{INTEGER("decoded_engine", JM_KEY_OPTIONAL), .min = 0, .max = JM_KEY_HUGE,
		.meaning = "of these pictures, by the GPU's engine for JPEG"},
	{INTEGER("engine_failed", JM_KEY_OPTIONAL), .min = 0, .max = JM_KEY_HUGE,
		.meaning = "pictures at which this engine failed although nvJPEG had said that it "
			   "can decode them; others decoded them, with slightly other values"},
	{INTEGER("bytes", 0), .min = 0, .max = JM_KEY_HUGE, .unit = "B",
		.meaning = "of their files"},
	{COUNT("corrupt", 0), .meaning = "files that could not be read and were skipped"},
	{POSITIVE("decode_s", 0), .unit = "s",
		.meaning = "of reading, decoding and cropping, summed over threads"},
	{POSITIVE("decode_cpu_s", JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "processor time of these threads in decode_s, which also has the time "
			   "that they waited for a processor or for files"},
	{POSITIVE("wait_s", 0), .unit = "s",
		.meaning = "that steps and evaluations waited for pictures"},
	{POSITIVE("machine_cpu_s", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "processor time of all that ran on the machine in setup, settle, "
			   "warmup, steady and verify; null = unknown"},
	{POSITIVE("host_joules", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "energy of the processor packages in these phases x decode_cpu_s / "
			   "machine_cpu_s: always an estimate; null = no meter of the packages, "
			   "one is unknown, decode_cpu_s is not less than machine_cpu_s, or "
			   "several ranks loaded"},
	{COUNT("threads", 0), .meaning = "that read pictures"},
	{POSITIVE("load_per_s", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "1/s",
		.meaning = "what they could load: threads x decoded / decode_s, at most cores x "
			   "decoded / decode_cpu_s (of fields on grids, which one thread reads at "
			   "a time, decoded / decode_cpu_s); null = nothing"},
	{COUNT("depth", JM_KEY_OPTIONAL), .meaning = "batches that may be prepared ahead"},
	{0},
};

const struct jm_key jm__until_keys[] = {
	{WORD("figure", 0), .words = figure_words,
		.meaning = "of evaluations: share of right answers, or loss"},
	{POSITIVE("target", 0), .meaning = "top1: at least; loss: at most"},
	{FLAG("reached", 0), .meaning = "false: the run ended before", .column = "until_reached"},
	{NUMBER("best", JM_KEY_NULL), .min = -JM_KEY_HUGE, .max = JM_KEY_HUGE,
		.meaning = "that an evaluation found; null = none did"},
	{COUNT("steps", JM_KEY_NULL), .meaning = "of this run until then, those of the warm-up "
						 "included; null = not reached"},
	{POSITIVE("epochs", JM_KEY_NULL),
		.meaning = "these steps by data.epoch_steps; null = not reached, or no pictures"},
	{POSITIVE("seconds", JM_KEY_NULL), .unit = "s",
		.meaning = "from the beginning of the first step to the end of that evaluation; "
			   "null = not reached",
		.column = "until_s"},
	{POSITIVE("joules", JM_KEY_NULL), .unit = "J",
		.meaning = "of the phase until, which has these seconds; null = not reached, or "
			   "unknown",
		.column = "until_J"},
	{0},
};
