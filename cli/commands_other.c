/* SPDX-License-Identifier: BSD-3-Clause */
/* commands_other.c -- the help texts of all other commands; see commands.h. */
#include "commands.h"

const struct cli_command cli_command_cp = {
    .name = "cp",
    .summary = "copy a checkpoint to another place, verified",
    .operands = {{"SRC", CLI_OPERAND_PATH, false}, {"DST", CLI_OPERAND_PATH, false}},
    .examples = {{"sidestep cp runs/7b/step-100 s3://bucket/7b/step-100",
                  "To an object store: see OBJECTS.md."},
                 {"sidestep cp s3://bucket/7b/step-100 /local/step-100",
                  "From an object store, for a program that reads only files."},
                 {"sidestep cp --replace runs/7b/step-200 /backup/newest",
                  "Replace an older copy."}},
    .description =
        {"SRC and DST are paths or URLs (s3://BUCKET/PREFIX), in any combination. DST is the path "
         "that the copy gets, not the directory to put it in. The copy has the same bytes, so the "
         "same save id and files. Its parent must exist.",
         "Every byte is checked by its hash when it is read. Checkpoints of torch have fewer "
         "checksums: their copy is read once more, and checked by those. DST appears when it is "
         "whole and durable, or not at all.",
         "After an interruption, the same command goes on where it stopped: files that are there "
         "are checked, and those that are missing or damaged are copied. gc removes what an "
         "interrupted copy left. A copy to a full disk gives the space back at once. If DST is "
         "already a whole copy of SRC, nothing is copied.",
         "Files that an incremental save shares with other checkpoints are copied. Pins, tags and "
         "metrics belong to the root, and are not."},
    .json = "{\"source\",\"destination\",\"save_id\",\"step\",\"files\",\"bytes\","
            "\"copied_files\",\"copied_bytes\"}",
    .options = {{.id = CLI_OPTION_REPLACE,
                 .name = "replace",
                 .text = "Replace the checkpoint at DST, which stays until the copy is whole. "
                         "Without it, that is an error."},
                {.id = CLI_OPTION_THREADS,
                 .letter = 'j',
                 .name = "threads",
                 .argument = "N",
                 .text = "Use N threads."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOT_FOUND |
             CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE | CLI_EXIT_INTERRUPTED,
    .run = cli_cp_run,
};

const struct cli_command cli_command_mirror = {
    .name = "mirror",
    .summary = "keep the checkpoints of a run at a second place",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, false}, {"MIRROR", CLI_OPERAND_PATH, false}},
    .examples = {{"sidestep mirror /nvme/7b s3://bucket/7b",
                  "Send the newest checkpoint, unless it is there already."},
                 {"sidestep mirror --follow --keep-last 10 /nvme/7b /shared/7b",
                  "Beside the training, until it is stopped."},
                 {"sidestep mirror --every 1000 --keep-every 10000 /nvme/7b s3://bucket/7b",
                  "Those of every 10,000th step, and others 1,000 steps apart."},
                 {"sidestep mirror --after $$ /nvme/7b s3://bucket/7b",
                  "In a script: when it has ended, or was killed."}},
    .description =
        {"ROOT is the root of a run, usually on a fast disk. MIRROR is another root, a path or a "
         "URL (s3://BUCKET/PREFIX), which gets its checkpoints, their pins, tags and metrics. What "
         "is to be done is found out from both places. So the same command goes on where it, or "
         "another one, was interrupted, in whatever process.",
         "The newest checkpoint is sent first. Older ones that are not at MIRROR then are passed "
         "over, unless they are pinned or named by --keep-every. A checkpoint is sent as by cp: "
         "every byte is checked as it is read, and the copy is whole, or not there. Instead of a "
         "damaged one, the next older one is sent, and the exit status is 3.",
         "The --keep options concern MIRROR alone, and nothing in ROOT is changed. Without them, "
         "everything stays there. What is pinned in either place stays there. Files of others in "
         "MIRROR stay, and a MIRROR with checkpoints of another run is refused.",
         "If each node has a ROOT for itself, run it on all of them at the same time, when the run "
         "has ended: each sends its part, and waits for the others for up to ten minutes. While "
         "the run goes on, it sends its parts itself. "
         "With --follow, a place that cannot be reached is tried again, at growing intervals of up "
         "to five minutes. SIGTERM and SIGINT end it, with 0."},
    .json = "{\"root\",\"mirror\",\"step\",\"mirrored_step\",\"sent\":[path],\"bytes\","
            "\"passed\":[\"path: reason\"],\"removed\":[path]}; step and mirrored_step are the "
            "newest whole ones in ROOT and MIRROR. With --follow, one such line for each time "
            "that something was sent or removed.",
    .options = {{.id = CLI_OPTION_EVERY,
                 .name = "every",
                 .argument = "STEPS",
                 .text = "Send a checkpoint only if it is at least so many steps after the newest "
                         "one in MIRROR."},
                {.id = CLI_OPTION_KEEP_LAST,
                 .name = "keep-last",
                 .argument = "N",
                 .text = "Keep the N newest in MIRROR."},
                {.id = CLI_OPTION_KEEP_EVERY,
                 .name = "keep-every",
                 .argument = "K",
                 .text = "Also send and keep those whose step is a multiple of K."},
                {.id = CLI_OPTION_RATE,
                 .name = "bytes-per-second",
                 .argument = "SIZE",
                 .text = "Write at most so much in a second."},
                {.id = CLI_OPTION_THREADS,
                 .letter = 'j',
                 .name = "threads",
                 .argument = "N",
                 .text = "Use N threads (2; to a bucket 4)."},
                {.id = CLI_OPTION_FOLLOW,
                 .letter = 'f',
                 .name = "follow",
                 .text = "Go on, and send what is saved from now on."},
                {.id = CLI_OPTION_INTERVAL,
                 .letter = 'i',
                 .name = "interval",
                 .argument = "TIME",
                 .text = "With --follow: how often to look (10s)."},
                {.id = CLI_OPTION_AFTER,
                 .name = "after",
                 .argument = "PID",
                 .text = "Return at once, and leave a process that does it when the process PID "
                         "has ended. For up to a day, it tries again what cannot be reached."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_NOT_FOUND | CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION |
             CLI_EXIT_SPACE | CLI_EXIT_INTERRUPTED,
    .run = cli_mirror_run,
};

const struct cli_command cli_command_convert = {
    .name = "convert",
    .summary = "convert to and from safetensors, torch.save() and others",
    .operands = {{"SRC", CLI_OPERAND_PATH, false}, {"DST", CLI_OPERAND_PATH, false}},
    .examples = {{"sidestep convert --model-only runs/7b/step-100 model",
                  "The weights, in the form of Hugging Face's libraries."},
                 {"sidestep convert hub/model runs/7b/start", "From there to a checkpoint."},
                 {"sidestep convert --model-only --dtype=bfloat16 runs/7b/step-100 7b.pt",
                  "For torch.load(), in half the size."},
                 {"sidestep convert --rename='s/^transformer[.]/model./' old.safetensors new",
                  "With other names."}},
    .description =
        {"SRC is a checkpoint (ours or torch's), a file of safetensors, a directory of them (with "
         "an index, as from Hugging Face, or without), or a file of torch.save(). Its content "
         "decides which; pickles are never executed. --to sets the format of DST. Without --to, "
         "the name of DST decides: .safetensors, .npz, .pt, .pth or .bin is a file. Any other name "
         "is a directory: safetensors if SRC is a checkpoint; a checkpoint otherwise, and with "
         "--partial.",
         "Several threads convert in pieces, in less than 256 MiB of memory. Objects, and tensors "
         "that are compressed or not row-major, are held whole. DST appears when it is whole and "
         "durable, or not at all. The next conversion, or gc, removes what a killed one leaves. "
         "SRC is not changed, and every byte that has a checksum is checked.",
         "safetensors and npz cannot hold objects (everything that is not a tensor), and "
         "torch.save() holds only plain data. By default such objects are an error: see --objects "
         "and --model-only. Small files of SRC go into a checkpoint, unless --model-only; the "
         "other formats have none.",
         "--model-only takes the dict at the top of SRC that is called model, model_state_dict, "
         "state_dict, module or app.model, without that name. If there is none, it takes all but "
         "the dicts with the usual names of optimizers, schedulers, data loaders and random "
         "numbers. If there are two of the former, or if the rest seems to contain the state of an "
         "optimizer, it is an error: select names with --include."},
    .json = "{\"source\",\"destination\",\"from\",\"to\",\"dry_run\",\"tensors\","
            "\"objects\",\"tensor_bytes\",\"bytes_read\",\"files\":[name],\"left_out\":"
            "[name],\"overflows\":[\"name: count\"],"
            "\"narrowed\":[\"name: dtype to dtype\"],\"lost\":[\"name: reason\"]}",
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
                 .text = "Convert only names that match, with *, ? and [...] as in a shell. May be "
                         "given several times."},
                {.id = CLI_OPTION_EXCLUDE,
                 .many = true,
                 .name = "exclude",
                 .argument = "GLOB",
                 .text = "Do not convert names that match. May be given several times."},
                {.id = CLI_OPTION_RENAME,
                 .many = true,
                 .name = "rename",
                 .argument = "s/A/B/",
                 .text = "Rename as sed does: A is an extended regular expression; B may contain & "
                         "and \\1 to \\9; a final g replaces every match. May be given several "
                         "times."},
                {.id = CLI_OPTION_MAPPING,
                 .name = "mapping",
                 .argument = "FILE",
                 .text = "Rename by a JSON object of old and new names, after --rename."},
                {.id = CLI_OPTION_DTYPE,
                 .name = "dtype",
                 .argument = "DTYPE",
                 .text = "Convert floating-point tensors to float64, float32, float16, "
                         "bfloat16, float8_e4m3fn or float8_e5m2: to the nearest, ties to even. "
                         "Overflows are counted and reported, also with --quiet."},
                {.id = CLI_OPTION_MAX_SHARD_SIZE,
                 .name = "max-shard-size",
                 .argument = "SIZE",
                 .text = "Limit of a file in a directory of safetensors (5GB)."},
                {.id = CLI_OPTION_OBJECTS,
                 .name = "objects",
                 .argument = "WHAT",
                 .choices = {"refuse", "skip"},
                 .text = "What to do with objects that the format cannot hold: refuse (the "
                         "default), or skip."},
                {.id = CLI_OPTION_PARTIAL,
                 .name = "partial",
                 .text = "Convert what can be read and verified of a damaged checkpoint. The rest "
                         "is left out and listed, and the exit status is 3, or 12 if files may not "
                         "be read but nothing is known to be damaged."},
                {.id = CLI_OPTION_RANKS,
                 .name = "ranks",
                 .argument = "N",
                 .text = "Write a checkpoint as N ranks would (1)."},
                {.id = CLI_OPTION_COMPRESS,
                 .name = "compress",
                 .argument = "HOW",
                 .choices = {"none", "zstd", "planes", "auto"},
                 .more_choices = true,
                 .text = "Compress the tensors of a checkpoint: none (the default), zstd (stock "
                         "torch loads it), zstd:LEVEL (1 to 19: for repeated bytes, which weights "
                         "do not have), planes (smaller), or auto, which means planes."},
                {.id = CLI_OPTION_THREADS,
                 .letter = 'j',
                 .name = "threads",
                 .argument = "N",
                 .text = "Use N threads, or as many as 256 MiB of memory suffice for."},
                {.id = CLI_OPTION_FORCE,
                 .letter = 'f',
                 .name = "force",
                 .text = "Replace DST, if it looks like the output of a conversion."},
                {.id = CLI_OPTION_DRY_RUN,
                 .letter = 'n',
                 .name = "dry-run",
                 .text = "Only print what would be written."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOT_FOUND |
             CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE | CLI_EXIT_INTERRUPTED,
    .run = cli_convert_run,
};

const struct cli_command cli_command_gc = {
    .name = "gc",
    .summary = "remove what killed saves and deletes left behind",
    .operands = {{"PARENT", CLI_OPERAND_DIRECTORY, false}},
    .examples = {{"sidestep gc --dry-run runs/7b", "What would be removed."},
                 {"sidestep gc --yes runs/7b", "Remove it without asking."}},
    .description =
        {"Removes leftovers directly in PARENT, and in the checkpoints there: only names that "
         "sidestep made and whose owner is dead, never a checkpoint, never one that was set aside "
         "as bad. Asks first if standard input and standard error are terminals; otherwise it "
         "does not ask.",
         "Each removed path is one line; each path that was kept is listed with the reason."},
    .json = "{\"dry_run\",\"removed\":[path],\"kept\":[\"path: reason\"],\"bytes\"}",
    .options = {{.id = CLI_OPTION_DRY_RUN,
                 .letter = 'n',
                 .name = "dry-run",
                 .text = "Only print what would be removed."},
                {.id = CLI_OPTION_YES, .letter = 'y', .name = "yes", .text = "Do not ask."},
                CLI_MIRROR_OPTION("PARENT is a root: remove leftovers there and at its mirror. "
                                  "Nothing is removed unless both can be read."),
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION,
    .run = cli_gc_run,
};

const struct cli_command cli_command_prune = {
    .name = "prune",
    .summary = "delete old checkpoints",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, false}},
    .examples = {{"sidestep prune --keep-last 3 --dry-run runs/7b", "What would be deleted."},
                 {"sidestep prune --keep-last 3 --keep-every 10000 --yes runs/7b",
                  "The last three, and those of every 10,000th step, stay."},
                 {"sidestep prune --keep-last 1 --keep-best 2 --metric loss runs/7b",
                  "The last one and the two with the smallest loss stay."}},
    .description =
        {"Deletes our checkpoints in ROOT that no option keeps. These always stay: the newest one "
         "that is valid, those that are pinned, those that are damaged (they do not count), those "
         "that cannot be read now, those that other programs wrote, and directories with files "
         "that are not sidestep's. Each is listed as kept, with the reason. 'sidestep convert "
         "--to=dcp' turns a checkpoint of torch.distributed.checkpoint into one of sidestep's. "
         "Checkpoints that a run left behind, by going back to an older one, are deleted first.",
         "Refused while a run has ROOT open, because the run deletes by itself. Asks first if "
         "standard input and standard error are terminals; otherwise --yes or --dry-run must be "
         "given. The next run, or gc, finishes an interrupted deletion."},
    .json = "{\"dry_run\",\"removed\":[path],\"kept\":[\"path: reason\"],\"bytes\"}",
    .options = {{.id = CLI_OPTION_KEEP_LAST,
                 .name = "keep-last",
                 .argument = "N",
                 .text = "Keep the N newest; must be given."},
                {.id = CLI_OPTION_KEEP_EVERY,
                 .name = "keep-every",
                 .argument = "K",
                 .text = "Also keep those whose step is a multiple of K."},
                {.id = CLI_OPTION_KEEP_BEST,
                 .name = "keep-best",
                 .argument = "N",
                 .text = "Also keep the N best by --metric."},
                {.id = CLI_OPTION_METRIC,
                 .name = "metric",
                 .argument = "NAME",
                 .text = "The metric of --keep-best; smaller is better."},
                {.id = CLI_OPTION_MAX, .name = "max", .text = "A larger metric is better."},
                {.id = CLI_OPTION_DRY_RUN,
                 .letter = 'n',
                 .name = "dry-run",
                 .text = "Only print what would be removed, and what would stay and why; "
                         "also while a run has ROOT open."},
                {.id = CLI_OPTION_YES, .letter = 'y', .name = "yes", .text = "Do not ask."},
                CLI_MIRROR_OPTION("Delete at ROOT and at its mirror, each by itself: what stays at "
                                  "one does not depend on the other. Nothing is deleted unless "
                                  "both can be read."),
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION,
    .run = cli_prune_run,
};

const struct cli_command cli_command_pin = {
    .name = "pin",
    .summary = "protect a checkpoint from deletion",
    .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}},
    .examples = {{"sidestep pin runs/7b/step-100", "It stays."}},
    .description =
        {"Retention does not delete a pinned checkpoint, and no save replaces it. It may "
         "be pinned while a run has its directory open."},
    .json = "{\"path\",\"pinned\"}",
    .options = {CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
    .run = cli_pin_run,
};

const struct cli_command cli_command_unpin = {
    .name = "unpin",
    .summary = "stop protecting a checkpoint",
    .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}},
    .examples = {{"sidestep unpin runs/7b/step-100", "Retention may delete it again."}},
    .description = {"Undoes pin. It deletes nothing."},
    .json = "{\"path\",\"pinned\"}",
    .options = {CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
    .run = cli_unpin_run,
};

const struct cli_command cli_command_tag = {
    .name = "tag",
    .summary = "add a tag to a checkpoint",
    .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}, {"TAG", CLI_OPERAND_TEXT, false}},
    .examples = {{"sidestep tag runs/7b/step-100 release-1", "ls shows it."},
                 {"sidestep tag --remove runs/7b/step-100 release-1", "Remove it."}},
    .description = {"A tag is a word of letters, digits, '_' and '-'. It does not protect from "
                    "deletion: see pin."},
    .json = "{\"path\",\"tag\",\"tagged\"}",
    .options =
        {{.id = CLI_OPTION_REMOVE, .letter = 'r', .name = "remove", .text = "Remove the tag."},
         CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
    .run = cli_tag_run,
};

const struct cli_command cli_command_rebuild = {
    .name = "rebuild",
    .summary = "make a lost .metadata anew from the shards",
    .operands = {{"CKPT", CLI_OPERAND_DIRECTORY, false}},
    .examples = {{"sidestep rebuild runs/7b/step-100", "Then it loads again."}},
    .description =
        {"Writes .metadata and the manifest of CKPT again, from the footers of its own shard "
         "files. Refused if the shards are not one whole save, if there is a readable .metadata, "
         "and for checkpoints of torch, whose shards have no footers."},
    .json = "{\"path\",\"rebuilt\"}",
    .options = {CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOT_FOUND |
             CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
    .run = cli_rebuild_run,
};

const struct cli_command cli_command_doctor = {
    .name = "doctor",
    .summary = "report what this machine allows, and how to allow more",
    .operands = {{"DIRECTORY", CLI_OPERAND_DIRECTORY, true}},
    .examples = {{"sidestep doctor /mnt/checkpoints", "For saves to this directory."},
                 {"sidestep doctor --json | jq -r '.findings[] | select(.state == \"no\") | "
                  ".fix'",
                  "How to allow more."}},
    .description =
        {"Checks, for this user and inside this container, what makes saves and loads fast: "
         "userfaultfd, huge pages, io_uring, O_DIRECT, priorities, the file system of "
         "DIRECTORY (default: the current directory). Run it in the environment of the training "
         "job, because rights, limits and seccomp filters differ. It writes one page to a file "
         "without a name.",
         "A state is one of: yes; partly (with a limit, which it names); no (sidestep does it in "
         "another way, which costs something); fact. A no is not a failure.",
         "pinned_memory and merged_memory describe the process that asks, here the command "
         "itself. To see whether a training process has such memory, read copy_reason of its "
         "saves: in SaveHandle.progress() in Python, in struct sidestep_save_info in C, or in the "
         "event 'staged'."},
    .json = "{\"directory\",\"findings\":[{\"name\",\"state\",\"text\",\"fix\"}]}; fix is "
            "null if there is nothing to do; later versions may add names.",
    .options = {CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION,
    .run = cli_doctor_run,
};

const struct cli_command cli_command_bench = {
    .name = "bench",
    .summary = "measure storage and memory, and what saves cost here",
    .operands = {{"DIRECTORY", CLI_OPERAND_DIRECTORY, true}},
    .examples = {{"sidestep bench --state=80GiB /mnt/checkpoints",
                  "The cost of saves of 80 GiB by each process there."},
                 {"sidestep bench --mtbf=6h --json /mnt/checkpoints | jq "
                  ".prediction.interval_seconds",
                  "How often to save, if something fails every six hours."},
                 {"sidestep bench s3://bucket/runs", "What a save to this bucket costs here."}},
    .description =
        {"Measures several operations in turns, and prints medians: copying memory; writing a new "
         "file plainly (O_DIRECT, fallocate, 4 MiB at a time, fsync) and reading it back; an "
         "asynchronous save of the same size, with checksums and commit; and a load of it with "
         "every byte verified. RATIO compares the stall with the copy, the save with the plain "
         "write, and the load with the plain read: 1 is equally fast.",
         "From this it predicts what a save of --state bytes by one process costs, and the "
         "interval between saves that loses the least time, by Young's formula. "
         "Processes that share a disk share its rate, so multiply.",
         "Needs three times --size of memory and of free space. Its files are in a directory "
         ".sidestep-bench.* in DIRECTORY (default: the current directory), which it removes at the "
         "end, unless it is killed.",
         "In a bucket, the memory copy, saves and loads are measured, without a plain write and "
         "read to compare them with. A load reads from the bucket each time. 'sidestep gc' does "
         "not remove what a killed bench left there: a checkpoint below .sidestep-bench.*."},
    .json = "{\"directory\",\"bytes\",\"direct_io\",\"seconds\":{\"memory_copy\",\"disk_write\","
            "\"disk_read\",\"save_stall\",\"save_background\",\"load\"},\"prediction\":{"
            "\"state_bytes\",\"stall_seconds\",\"background_seconds\",\"load_seconds\","
            "\"mtbf_seconds\",\"interval_seconds\",\"saving_share\",\"failure_seconds\","
            "\"failure_share\"}}; seconds are lists with one number for each run, sorted. In a "
            "bucket, direct_io is null, and disk_write and disk_read are missing.",
    .options = {{.id = CLI_OPTION_SIZE,
                 .name = "size",
                 .argument = "SIZE",
                 .text = "Bytes that each measurement moves (1GiB). Larger is more accurate: a "
                         "cache of the disk may hold a small file."},
                {.id = CLI_OPTION_STATE,
                 .name = "state",
                 .argument = "SIZE",
                 .text = "Size of the state of one process, for the prediction (--size)."},
                {.id = CLI_OPTION_RUNS,
                 .name = "runs",
                 .argument = "N",
                 .text = "How often to measure (3)."},
                {.id = CLI_OPTION_MTBF,
                 .name = "mtbf",
                 .argument = "TIME",
                 .text = "Mean time between failures of the whole job (24h)."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE | CLI_EXIT_INTERRUPTED,
    .run = cli_bench_run,
};

const struct cli_command cli_command_completion = {
    .name = "completion",
    .summary = "print a completion script for a shell",
    .operands = {{"SHELL", CLI_OPERAND_SHELL, false}},
    .examples = {{"source <(sidestep completion bash)", "For this bash."},
                 {"sidestep completion zsh > \"${fpath[1]}/_sidestep\"", "For every zsh."},
                 {"sidestep completion fish > ~/.config/fish/completions/sidestep.fish",
                  "For every fish."}},
    .description = {"SHELL is bash, zsh or fish."},
    .json = "{\"shell\",\"script\"}",
    .options = {CLI_END_OPTIONS},
    .run = cli_completion_run,
};

const struct cli_command cli_command_help = {
    .name = "help",
    .summary = "print the help of a command",
    .operands = {{"COMMAND", CLI_OPERAND_COMMAND, true}},
    .examples = {{"sidestep help", "All commands."},
                 {"sidestep help verify", "One command; the same as its --help."}},
    .description = {"The man pages have the same text: sidestep(1), sidestep-ls(1), and so on."},
    .json = "{\"commands\":[{\"name\",\"summary\",\"operands\",\"options\":[{\"name\","
            "\"letter\",\"argument\",\"text\"}]}],\"global_options\"}",
    .options = {{.id = CLI_OPTION_MAN,
                 .hidden = true,
                 .name = "man",
                 .text = "Print the man page in roff."},
                CLI_END_OPTIONS},
    .run = cli_help_run,
};

const struct cli_command cli_command_version = {
    .name = "version",
    .summary = "print the version",
    .examples = {{"sidestep version", "The command's version, and the library's if it differs."}},
    .description = {"Prints the version of the command and, if it differs, that of the library "
                    "that it runs with."},
    .json = "{\"version\",\"library_version\"}",
    .options = {CLI_END_OPTIONS},
    .run = cli_version_run,
};
