/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commands.c -- the table itself: every command, option, operand, example and exit status,
 * with the words that users read about them.
 */
#include "commands.h"

#include <string.h>

#define END_OPTIONS                                                                                \
    {                                                                                              \
        .name = NULL                                                                               \
    }

const struct cli_option cli_commands_global_options[] = {
    {.id = CLI_OPTION_JSON,
     .name = "json",
     .text = "Print results as one line of JSON on standard output, and an error as one line of "
             "JSON on standard error: {\"error\":{\"status\",\"message\",\"errno\",\"rank\"}}. "
             "Field names are stable; sizes are integers, in bytes; what is unknown is null."},
    {.id = CLI_OPTION_COLOR,
     .name = "color",
     .argument = "WHEN",
     .choices = {"auto", "always", "never"},
     .text = "Colour the output: auto (the default: if standard output is a terminal, NO_COLOR is "
             "not set and TERM is not dumb), always, or never."},
    {.id = CLI_OPTION_QUIET,
     .letter = 'q',
     .name = "quiet",
     .text = "No progress and no notes on standard error; errors are still printed."},
    {.id = CLI_OPTION_VERBOSE,
     .letter = 'v',
     .name = "verbose",
     .text = "Say more: exact times instead of ages, and where in the library an error arose."},
    {.id = CLI_OPTION_HELP, .letter = 'h', .name = "help", .text = "Print the help and stop."},
    {.id = CLI_OPTION_VERSION,
     .letter = 'V',
     .name = "version",
     .text = "Print the version and stop."},
    END_OPTIONS,
};

const struct cli_exit cli_commands_exits[] = {
    {0, 0, "Done."},
    {1, 0, "Failed; the message says why."},
    {2, 0, "Wrong usage: unknown command or option, missing or wrong operand."},
    {3, CLI_EXIT_DAMAGE, "Damage: stored bytes do not match their checksum or format."},
    {4, CLI_EXIT_UNCOMMITTED, "Not a checkpoint: incomplete, or never committed."},
    {5, CLI_EXIT_UNSUPPORTED, "Not supported."},
    {10, CLI_EXIT_NOTHING, "Nothing found."},
    {11, CLI_EXIT_LOCKED, "Locked or in use."},
    {12, CLI_EXIT_PERMISSION, "Permission denied."},
    {28, CLI_EXIT_SPACE, "No space left."},
    {130, CLI_EXIT_INTERRUPTED, "Interrupted."},
    {-1, 0, NULL},
};

const char *const cli_commands_shells[] = {"bash", "zsh", "fish", NULL};

const struct cli_command cli_commands[] = {
    {
        .name = "ls",
        .summary = "list the checkpoints in a directory",
        .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, true}},
        .examples = {{"sidestep ls", "What lies in the current directory."},
                     {"sidestep ls --all runs/7b", "Other directories, too."},
                     {"sidestep ls --json runs/7b | jq -r '.checkpoints[] | "
                      "select(.state == \"committed\") | .path'",
                      "The paths of what can be loaded."}},
        .description =
            {"Lists what lies directly in ROOT (default: the current directory), by step, oldest "
             "first. It reads directories and small records only, never tensors, and changes "
             "nothing.",
             "A state is one of: committed (a checkpoint; ours or torch's), saving (being written, "
             "or left behind by a killed save), trash (being deleted), bad (failed verification "
             "and was set aside), unreadable (it may not be looked into, so it may be any of "
             "these: status 12), foreign (any other directory). The step is the one that the "
             "checkpoint says; where it says none, that of a name like step-N, checkpoint-N, "
             "global_stepN, iter_N, epoch_N or N.",
             "Where there are any, marks are shown: pinned; abandoned (a run went back to an older "
             "one, so this one is of a line that has ended); tags; metrics."},
        .json = "{\"checkpoints\":[{\"name\",\"path\",\"step\",\"state\",\"bytes\",\"files\","
                "\"ranks\",\"saved_at\",\"pinned\",\"abandoned\",\"tags\":[tag],\"metrics\":{name:"
                "value}}]}; what is unknown is null; saved_at is RFC 3339, UTC.",
        .options = {{.id = CLI_OPTION_ALL,
                     .letter = 'a',
                     .name = "all",
                     .text = "List foreign directories, too."},
                    END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION,
        .run = cli_ls_run,
    },
    {
        .name = "show",
        .summary = "show what is in a checkpoint",
        .operands = {{"CKPT", CLI_OPERAND_PATH, false}, {"GLOB", CLI_OPERAND_TEXT, true}},
        .examples = {{"sidestep show runs/7b/step-100", "Tensors and objects."},
                     {"sidestep show runs/7b/step-100 'model.layers.0.*'", "Some of them."},
                     {"sidestep show --tree runs/7b/step-100", "Nested, with sums."},
                     {"sidestep show --json --stats model.safetensors | jq '.tensors[] | "
                      "select(.stats.nan > 0) | .name'",
                      "Which tensors have a NaN?"}},
        .description =
            {"CKPT may also be a file of safetensors, a directory of them, or a file of "
             "torch.save(). Prints where it comes from, then its tensors (name, dtype, shape, "
             "bytes, "
             "stored chunks) and its objects (name, stored bytes, value). GLOB selects names, with "
             "*, ? and [...] as in a shell; quote it. Values are decoded without executing "
             "anything.",
             "Names are printed with control characters and invalid UTF-8 escaped."},
        .json = "{\"path\",\"format\",\"save_id\",\"step\",\"world_size\",\"bytes\",\"tensors\":"
                "[{\"name\",\"dtype\",\"shape\",\"bytes\",\"chunks\":[{\"offsets\",\"lengths\","
                "\"file\",\"file_offset\",\"file_bytes\"}],\"stats\":{\"elements\",\"min\",\"max\","
                "\"mean\",\"nan\",\"inf\"}}],\"objects\":[{\"name\",\"bytes\","
                "\"file\",\"file_offset\",\"file_bytes\",\"value\"}]}; value is null unless it "
                "is plain data of at most 1 MiB; stats is there with --stats; numbers that JSON "
                "lacks are the strings "
                "\"NaN\", \"Infinity\" and \"-Infinity\".",
        .options = {{.id = CLI_OPTION_TREE,
                     .letter = 't',
                     .name = "tree",
                     .text = "Nest names at their dots, with the sum of each branch."},
                    {.id = CLI_OPTION_CHUNKS,
                     .letter = 'c',
                     .name = "chunks",
                     .text = "List the stored chunks of each tensor: offsets, lengths, file, place "
                             "in the file."},
                    {.id = CLI_OPTION_STATS,
                     .letter = 's',
                     .name = "stats",
                     .text =
                         "Read the tensors, and show the least and the largest element (but for "
                         "NaN), the mean of the finite ones, and how many are NaN and "
                         "infinite."},
                    END_OPTIONS},
        .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOTHING |
                 CLI_EXIT_PERMISSION,
        .run = cli_show_run,
    },
    {
        .name = "latest",
        .summary = "print the path of the newest valid checkpoint",
        .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, false}},
        .examples = {{"train --resume \"$(sidestep latest runs/7b)\"", "Resume where it stopped."},
                     {"sidestep latest --verify runs/7b", "Check every byte before saying so."}},
        .description =
            {"Prints the path alone: what a job should resume from. By default a checkpoint must "
             "be "
             "committed and whole in its structure (files, sizes, names, ids); one that is not is "
             "passed over for the next older one. With --verify it is said of each, on standard "
             "error, why it is passed over.",
             "The path is printed as it is, unless standard output is a terminal: then control "
             "characters in it are escaped."},
        .json = "{\"path\"}",
        .options = {{.id = CLI_OPTION_VERIFY,
                     .name = "verify",
                     .text =
                         "Read everything and check every byte against its checksum. An interrupt "
                         "stops it soon."},
                    END_OPTIONS},
        .exits = CLI_EXIT_DAMAGE | CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION | CLI_EXIT_INTERRUPTED,
        .run = cli_latest_run,
    },
    {
        .name = "verify",
        .summary = "check every byte of one checkpoint or of many",
        .operands = {{"PATH", CLI_OPERAND_DIRECTORY, false}},
        .examples = {{"sidestep verify runs/7b/step-100", "One checkpoint."},
                     {"sidestep verify runs/7b", "Every committed checkpoint in a directory."},
                     {"sidestep verify --json runs/7b | jq .ok", "For a program."}},
        .description =
            {"Reads everything and compares it with the checksums made when it was saved. PATH is "
             "a "
             "checkpoint, or a directory of checkpoints: then each committed one is checked, and "
             "unfinished ones are counted. Checkpoints that torch wrote carry fewer checksums: "
             "there it checks structure, coverage, and CRC32 where it was written.",
             "Each problem is one line: file, name, kind, message. A kind is one of: missing, "
             "size, "
             "hash, format, unsafe, id, coverage, io. The first 1000 are listed, the rest counted. "
             "Of a file that is too short, what lies before its end is checked. Nothing is "
             "changed. An interrupt stops it soon."},
        .json = "{\"ok\",\"checked_bytes\",\"problems\":[{\"file\",\"name\",\"kind\",\"message\"}],"
                "\"unlisted\"}; for a directory of checkpoints {\"ok\",\"checked_bytes\","
                "\"checkpoints\":[{\"path\",\"ok\",\"checked_bytes\",\"problems\",\"unlisted\"}]}, "
                "with \"error\" where one could not be checked.",
        .options = {{.id = CLI_OPTION_THREADS,
                     .letter = 'j',
                     .name = "threads",
                     .argument = "N",
                     .text = "Read and hash with N threads; the default depends on the machine."},
                    END_OPTIONS},
        .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION |
                 CLI_EXIT_INTERRUPTED,
        .run = cli_verify_run,
    },
    {
        .name = "cat",
        .summary = "write a tensor or an object to standard output",
        .operands = {{"CKPT", CLI_OPERAND_PATH, false}, {"NAME", CLI_OPERAND_TEXT, false}},
        .examples = {{"sidestep cat --npy runs/7b/step-100 model.norm.weight > norm.npy",
                      "A tensor for NumPy."},
                     {"sidestep cat runs/7b/step-100 model.norm.weight | sha256sum",
                      "Its bytes alone."},
                     {"sidestep cat --value runs/7b/step-100 optim.param_groups",
                      "An object as JSON."}},
        .description =
            {"Writes the whole tensor, contiguous, row-major, little-endian, whatever chunks it is "
             "stored in; or the stored bytes of an object. Every byte is verified on the way. "
             "A large tensor goes out in pieces, so memory stays small; with --npy it is verified "
             "whole before the first byte.",
             "With --value, what JSON lacks is written as {\"$bytes\":\"base64\"} and "
             "{\"$opaque\":\"description\"}; numbers that JSON lacks are the strings \"NaN\", "
             "\"Infinity\" and \"-Infinity\"; a tuple is an array."},
        .json = "The output is what it is without --json; errors are JSON.",
        .options = {{.id = CLI_OPTION_NPY,
                     .name = "npy",
                     .text = "Put a NumPy header in front (.npy, version 1.0). For bool, integers, "
                             "float16, float32, float64, complex64 and complex128; NumPy lacks the "
                             "others."},
                    {.id = CLI_OPTION_VALUE,
                     .name = "value",
                     .text = "Decode an object and write it as JSON. Nothing is executed."},
                    {.id = CLI_OPTION_FORCE,
                     .letter = 'f',
                     .name = "force",
                     .text = "Write bytes even to a terminal."},
                    END_OPTIONS},
        .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOTHING |
                 CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
        .run = cli_cat_run,
    },
    {
        .name = "convert",
        .summary = "turn a checkpoint into another format, or back",
        .operands = {{"SRC", CLI_OPERAND_PATH, false}, {"DST", CLI_OPERAND_PATH, false}},
        .examples = {{"sidestep convert --model-only runs/7b/step-100 model",
                      "The weights, as Hugging Face's libraries want them."},
                     {"sidestep convert hub/model runs/7b/start", "And back: a checkpoint."},
                     {"sidestep convert --model-only --dtype=bfloat16 runs/7b/step-100 7b.pt",
                      "For torch.load(), in half the size."},
                     {"sidestep convert --rename='s/^transformer[.]/model./' old.safetensors new",
                      "With other names."}},
        .description =
            {"SRC is a checkpoint (ours or torch's), a file of safetensors, a directory of them "
             "(with an index, as of Hugging Face, or without), or a file of torch.save(). What it "
             "is, its content says; pickles are never executed. DST is what --to says, or else "
             "what "
             "its name says: .safetensors, .npz, .pt, .pth or .bin is a file; any other name is a "
             "directory of safetensors if SRC is a checkpoint, and a checkpoint if not.",
             "It goes in pieces, by several threads, in less than 256 MiB of memory. DST appears "
             "when it is whole and durable, or not at all; what a killed conversion leaves is "
             "removed by the next one, or by gc. SRC is not changed, and every byte of it that is "
             "read is checked, as far as there are checksums.",
             "Objects (all that is not a tensor) cannot be held by safetensors and npz, and by "
             "torch.save() only if they are plain data. By default this is an error: see "
             "--objects and --model-only.",
             "--model-only takes the dict at the top of SRC that is called model, "
             "model_state_dict, state_dict, module or app.model, without that name; where there is "
             "none, all but the dicts that are called as those of optimizers, schedulers, data "
             "loaders and random numbers are."},
        .json = "{\"source\",\"destination\",\"from\",\"to\",\"dry_run\",\"tensors\","
                "\"objects\",\"tensor_bytes\",\"bytes_read\",\"files\":[name],\"left_out\":"
                "[name],\"aside\",\"overflows\":[\"name: count\"]}",
        .options = {{.id = CLI_OPTION_TO,
                     .name = "to",
                     .argument = "FORMAT",
                     .choices = {"dcp", "safetensors", "torch", "npz"},
                     .text = "Format of DST: dcp, safetensors, torch or npz."},
                    {.id = CLI_OPTION_MODEL_ONLY,
                     .name = "model-only",
                     .text = "Only the weights; no objects."},
                    {.id = CLI_OPTION_INCLUDE,
                     .many = true,
                     .name = "include",
                     .argument = "GLOB",
                     .text = "Only names that match, with *, ? and [...] as in a shell. May be "
                             "given several times."},
                    {.id = CLI_OPTION_EXCLUDE,
                     .many = true,
                     .name = "exclude",
                     .argument = "GLOB",
                     .text = "No names that match. May be given several times."},
                    {.id = CLI_OPTION_RENAME,
                     .many = true,
                     .name = "rename",
                     .argument = "s/A/B/",
                     .text = "Names in DST, as by sed: A is an extended regular expression, B may "
                             "have & and \\1 to \\9; g behind it: each match. May be given several "
                             "times."},
                    {.id = CLI_OPTION_MAPPING,
                     .name = "mapping",
                     .argument = "FILE",
                     .text = "The same from a JSON object of old and new names, after --rename."},
                    {.id = CLI_OPTION_DTYPE,
                     .name = "dtype",
                     .argument = "DTYPE",
                     .text =
                         "Convert floating-point tensors to float64, float32, float16, "
                         "bfloat16, float8_e4m3fn or float8_e5m2: to the nearest, ties to even. "
                         "What overflows is counted."},
                    {.id = CLI_OPTION_MAX_SHARD_SIZE,
                     .name = "max-shard-size",
                     .argument = "SIZE",
                     .text = "Of a file in a directory of safetensors (5GB)."},
                    {.id = CLI_OPTION_OBJECTS,
                     .name = "objects",
                     .argument = "WHAT",
                     .choices = {"refuse", "skip", "aside"},
                     .text =
                         "What becomes of objects that the format cannot hold: refuse (the "
                         "default), skip, or aside: into objects.pt in DST, or DST.objects.pt."},
                    {.id = CLI_OPTION_RANKS,
                     .name = "ranks",
                     .argument = "N",
                     .text = "Write a checkpoint as N ranks would (1)."},
                    {.id = CLI_OPTION_COMPRESS,
                     .name = "compress",
                     .argument = "HOW",
                     .text = "Compress the tensors of a checkpoint: none."},
                    {.id = CLI_OPTION_THREADS,
                     .letter = 'j',
                     .name = "threads",
                     .argument = "N",
                     .text = "Use N threads; each takes 30 MiB of memory."},
                    {.id = CLI_OPTION_FORCE,
                     .letter = 'f',
                     .name = "force",
                     .text = "Replace DST, if it is what a conversion makes."},
                    {.id = CLI_OPTION_DRY_RUN,
                     .letter = 'n',
                     .name = "dry-run",
                     .text = "Only say what would be written."},
                    END_OPTIONS},
        .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOTHING |
                 CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE | CLI_EXIT_INTERRUPTED,
        .run = cli_convert_run,
    },
    {
        .name = "gc",
        .summary = "remove what killed saves and deletes left behind",
        .operands = {{"PARENT", CLI_OPERAND_DIRECTORY, false}},
        .examples = {{"sidestep gc --dry-run runs/7b", "What would go."},
                     {"sidestep gc --yes runs/7b", "Remove it without asking."}},
        .description =
            {"Removes leftovers directly in PARENT, and in the checkpoints that lie there: only "
             "names that sidestep made, only those whose "
             "owner is dead, never a checkpoint, never one that was set aside as bad. Asks first "
             "if "
             "standard input and standard error are terminals; elsewhere it does not ask.",
             "Each removed path is one line; what was kept is listed with its reason."},
        .json = "{\"dry_run\",\"removed\":[path],\"kept\":[\"path: reason\"],\"bytes\"}",
        .options = {{.id = CLI_OPTION_DRY_RUN,
                     .letter = 'n',
                     .name = "dry-run",
                     .text = "Only say what would be removed."},
                    {.id = CLI_OPTION_YES, .letter = 'y', .name = "yes", .text = "Do not ask."},
                    END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION,
        .run = cli_gc_run,
    },
    {
        .name = "prune",
        .summary = "delete old checkpoints",
        .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, false}},
        .examples = {{"sidestep prune --keep-last 3 --dry-run runs/7b", "What would go."},
                     {"sidestep prune --keep-last 3 --keep-every 10000 --yes runs/7b",
                      "The last three, and those of every 10,000th step, stay."},
                     {"sidestep prune --keep-last 1 --keep-best 2 --metric loss runs/7b",
                      "And the two with the smallest loss."}},
        .description =
            {"Deletes checkpoints of ours in ROOT that no option keeps. What stays in any case: "
             "the newest one that is valid, those that are pinned, those that are damaged (they do "
             "not count), those that other programs wrote, and directories with files that are not "
             "sidestep's. Those that a run left behind, by going back to an older one, go first.",
             "Refused while a run has ROOT open: that deletes for itself. Asks first if standard "
             "input and standard error are terminals; elsewhere --yes or --dry-run must be given. "
             "An interrupted deletion is finished by the next run, or by gc."},
        .json = "{\"dry_run\",\"removed\":[path],\"kept\":[\"path: reason\"],\"bytes\"}",
        .options = {{.id = CLI_OPTION_KEEP_LAST,
                     .name = "keep-last",
                     .argument = "N",
                     .text = "Keep the N newest; must be given."},
                    {.id = CLI_OPTION_KEEP_EVERY,
                     .name = "keep-every",
                     .argument = "K",
                     .text = "Keep those whose step is a multiple of K, too."},
                    {.id = CLI_OPTION_KEEP_BEST,
                     .name = "keep-best",
                     .argument = "N",
                     .text = "Keep the N best by --metric, too."},
                    {.id = CLI_OPTION_METRIC,
                     .name = "metric",
                     .argument = "NAME",
                     .text = "The metric of --keep-best; the smaller the better."},
                    {.id = CLI_OPTION_MAX,
                     .name = "max",
                     .text = "The larger the metric, the better."},
                    {.id = CLI_OPTION_DRY_RUN,
                     .letter = 'n',
                     .name = "dry-run",
                     .text = "Only say what would be removed."},
                    {.id = CLI_OPTION_YES, .letter = 'y', .name = "yes", .text = "Do not ask."},
                    END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION,
        .run = cli_prune_run,
    },
    {
        .name = "pin",
        .summary = "protect a checkpoint from being deleted",
        .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}},
        .examples = {{"sidestep pin runs/7b/step-100", "It stays."}},
        .description = {"No retention deletes a pinned checkpoint, and no save replaces it. It may "
                        "be pinned while a run is using its directory."},
        .json = "{\"path\",\"pinned\"}",
        .options = {END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
        .run = cli_pin_run,
    },
    {
        .name = "unpin",
        .summary = "no longer protect a checkpoint",
        .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}},
        .examples = {{"sidestep unpin runs/7b/step-100", "It may go when its time comes."}},
        .description = {"Takes back what pin did. Nothing is deleted by it."},
        .json = "{\"path\",\"pinned\"}",
        .options = {END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
        .run = cli_unpin_run,
    },
    {
        .name = "tag",
        .summary = "put a tag on a checkpoint",
        .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}, {"TAG", CLI_OPERAND_TEXT, false}},
        .examples = {{"sidestep tag runs/7b/step-100 release-1", "ls shows it."},
                     {"sidestep tag --remove runs/7b/step-100 release-1", "Take it away."}},
        .description = {"A tag is a word of letters, digits, '_' and '-'. It keeps nothing from "
                        "being deleted: see pin."},
        .json = "{\"path\",\"tag\",\"tagged\"}",
        .options = {{.id = CLI_OPTION_REMOVE,
                     .letter = 'r',
                     .name = "remove",
                     .text = "Take the tag away."},
                    END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
        .run = cli_tag_run,
    },
    {
        .name = "rebuild",
        .summary = "make a lost .metadata anew from the shards",
        .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}},
        .examples = {{"sidestep rebuild runs/7b/step-100", "Then it loads again."}},
        .description =
            {"Writes .metadata and the manifest of CKPT again, from the footers of its own shard "
             "files. Refused where the shards do not make up one whole save, where a readable "
             ".metadata is there, and for what torch wrote: its shards have no footers."},
        .json = "{\"path\",\"rebuilt\"}",
        .options = {END_OPTIONS},
        .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOTHING |
                 CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
        .run = cli_rebuild_run,
    },
    {
        .name = "doctor",
        .summary = "say what this machine allows, and what to do about each no",
        .operands = {{"DIRECTORY", CLI_OPERAND_DIRECTORY, true}},
        .examples = {{"sidestep doctor /mnt/checkpoints", "For saves that go there."},
                     {"sidestep doctor --json | jq -r '.findings[] | select(.state == \"no\") | "
                      ".fix'",
                      "What to do."}},
        .description =
            {"Tries out, for this user and inside this container, what makes saves and loads fast: "
             "userfaultfd, huge pages, io_uring, O_DIRECT, priorities, the file system of "
             "DIRECTORY (default: the current directory). Run it as the training job runs: rights, "
             "limits and seccomp filters differ. Writes one page to a file without a name.",
             "A state is one of: yes; partly (with a limit, which is said); no (sidestep does it "
             "in another way, which costs something); fact. A no is no failure."},
        .json = "{\"directory\",\"findings\":[{\"name\",\"state\",\"text\",\"fix\"}]}; fix is "
                "null where nothing is to be done; other names may come.",
        .options = {END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION,
        .run = cli_doctor_run,
    },
    {
        .name = "bench",
        .summary = "measure this disk and memory, and what saves cost here",
        .operands = {{"DIRECTORY", CLI_OPERAND_DIRECTORY, true}},
        .examples = {{"sidestep bench --state=80GiB /mnt/checkpoints",
                      "What saves of 80 GiB by each process would cost there."},
                     {"sidestep bench --mtbf=6h --json /mnt/checkpoints | jq "
                      ".prediction.interval_seconds",
                      "How often to save, if something fails every six hours."}},
        .description =
            {"Measures in turns, and prints medians: copying memory; writing a new file plainly "
             "(O_DIRECT, fallocate, 4 MiB at a time, fsync) and reading it back; an asynchronous "
             "save of the same size, checksums and commit included; and a load of it with every "
             "byte verified. RATIO compares the stall with the copy, the save with the plain "
             "write, the load with the plain read: 1 is as fast.",
             "From this it says what a save of --state bytes by one process costs, and the "
             "interval "
             "between saves that loses the least time, by Young's and Daly's formula. Processes "
             "that share a disk share its rate, so multiply.",
             "Needs three times --size of memory and of free space. Its files lie in a directory "
             ".sidestep-bench.* in DIRECTORY (default: the current directory), which is removed at "
             "the end; a killed one leaves it behind."},
        .json =
            "{\"directory\",\"bytes\",\"direct_io\",\"seconds\":{\"memory_copy\",\"disk_write\","
            "\"disk_read\",\"save_stall\",\"save_background\",\"load\"},\"prediction\":{"
            "\"state_bytes\",\"stall_seconds\",\"background_seconds\",\"load_seconds\","
            "\"mtbf_seconds\",\"interval_seconds\",\"saving_share\",\"failure_seconds\","
            "\"failure_share\"}}; seconds are lists with one number for each run, sorted.",
        .options = {{.id = CLI_OPTION_SIZE,
                     .name = "size",
                     .argument = "SIZE",
                     .text =
                         "Bytes that each measurement moves (1GiB). The larger, the truer: small "
                         "ones may end in a cache of the disk."},
                    {.id = CLI_OPTION_STATE,
                     .name = "state",
                     .argument = "SIZE",
                     .text = "The state of one process for which to say what saves cost; --size by "
                             "default."},
                    {.id = CLI_OPTION_RUNS,
                     .name = "runs",
                     .argument = "N",
                     .text = "How often to measure (3)."},
                    {.id = CLI_OPTION_MTBF,
                     .name = "mtbf",
                     .argument = "TIME",
                     .text = "Mean time between failures of the whole job (24h)."},
                    END_OPTIONS},
        .exits = CLI_EXIT_NOTHING | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE | CLI_EXIT_INTERRUPTED,
        .run = cli_bench_run,
    },
    {
        .name = "completion",
        .summary = "print a completion script for a shell",
        .operands = {{"SHELL", CLI_OPERAND_SHELL, false}},
        .examples = {{"source <(sidestep completion bash)", "For this bash."},
                     {"sidestep completion zsh > \"${fpath[1]}/_sidestep\"", "For every zsh."},
                     {"sidestep completion fish > ~/.config/fish/completions/sidestep.fish",
                      "For every fish."}},
        .description = {"SHELL is bash, zsh or fish."},
        .json = "{\"shell\",\"script\"}",
        .options = {END_OPTIONS},
        .run = cli_completion_run,
    },
    {
        .name = "help",
        .summary = "print the help of a command",
        .operands = {{"COMMAND", CLI_OPERAND_COMMAND, true}},
        .examples = {{"sidestep help", "What there is."},
                     {"sidestep help verify", "All about one command; as its --help."}},
        .description =
            {"The man pages have the same text: sidestep(1), sidestep-ls(1), and so on."},
        .json = "{\"commands\":[{\"name\",\"summary\",\"operands\",\"options\":[{\"name\","
                "\"letter\",\"argument\",\"text\"}]}],\"global_options\"}",
        .options = {{.id = CLI_OPTION_MAN,
                     .hidden = true,
                     .name = "man",
                     .text = "Print the man page in roff."},
                    END_OPTIONS},
        .run = cli_help_run,
    },
    {
        .name = "version",
        .summary = "print the version",
        .examples = {{"sidestep version",
                      "The command's version, and the library's if it differs."}},
        .description =
            {"Prints the version of the command and, where it is another one, that of the "
             "library it runs with."},
        .json = "{\"version\",\"library_version\"}",
        .options = {END_OPTIONS},
        .run = cli_version_run,
    },
    {.name = NULL},
};

const struct cli_command *cli_commands_find(const char *name)
{
    for (const struct cli_command *command = cli_commands; command->name != NULL; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}
