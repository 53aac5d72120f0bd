#include "recipes/schema_table.h"

namespace regrow {
namespace {

using Kind = ValueKind;

constexpr uint64_t kMillisecond = 1000;
constexpr uint64_t kSecond = 1000000;
constexpr uint64_t kDay = 24 * 3600 * kSecond;
constexpr uint64_t kKiB = 1024;
constexpr uint64_t kTiB = 1ull << 40;

Duration duration_of(const RecipeValue& value) { return {static_cast<int64_t>(value.number)}; }

template <class Enum>
Enum enum_of(const RecipeValue& value) {
  Enum result{};
  from_string(value.text, result);  // the text is one of the row's choices
  return result;
}

// The intensity of the class in "restarts.hang" or "restarts.hang.max".
Intensity& intensity_of(JobSpec& spec, std::string_view path) {
  path.remove_prefix(path.find('.') + 1);
  FailureClass failure_class{};
  from_string(path.substr(0, path.find('.')), failure_class);
  for (Intensity& intensity : spec.intensity) {
    if (intensity.failure_class == failure_class) return intensity;
  }
  return spec.intensity.emplace_back(Intensity{failure_class, 0, {}});
}

void store_limit(JobSpec& spec, std::string_view path, const RecipeValue& value) {
  intensity_of(spec, path).max_restarts = value.unlimited ? -1 : static_cast<int32_t>(value.number);
}

SchemaRow intensity_row(std::string_view path, std::string_view limit, std::string_view doc) {
  return {.path = path,
          .kind = Kind::intensity,
          .default_text = limit,
          .max = 1000000,
          .doc = doc,
          .store = store_limit};
}

// A setter for one member of the JobSpec, in the row's own words.
#define REGROW_STORE(expression) \
  [](JobSpec& spec, std::string_view, const RecipeValue& value) { expression; }
#define REGROW_STORE_U32(member) REGROW_STORE(spec.member = static_cast<uint32_t>(value.number))

void add_job_rows(std::vector<SchemaRow>& rows) {
  rows.insert(rows.end(),
              {{.path = "name",
                .kind = Kind::name,
                .required = true,
                .example = "my-training",
                .doc = "What people call the job; names need not be unique.",
                .store = REGROW_STORE(spec.name = value.text)},
               {.path = "ranks",
                .kind = Kind::count,
                .required = true,
                .min = 1,
                .max = 100000,
                .example = "4",
                .doc = "How many ranks, that is processes, the job has (WORLD_SIZE).",
                .store = REGROW_STORE_U32(ranks)},
               {.path = "groups",
                .kind = Kind::count,
                .default_text = "1",
                .min = 1,
                .max = 100000,
                .doc = "Replica groups the ranks are divided into, evenly.",
                .store = REGROW_STORE_U32(groups)},
               {.path = "spares",
                .kind = Kind::count,
                .default_text = "0",
                .max = 100000,
                .doc = "Places kept free as hot spares.",
                .store = REGROW_STORE_U32(spares)},
               {.path = "ranks_per_host",
                .kind = Kind::count,
                .default_text = "0",
                .max = 1024,
                .doc = "At most this many ranks on one host; 0 = as many as its devices allow.",
                .store = REGROW_STORE_U32(ranks_per_host)},
               {.path = "devices", .doc = "What each rank gets."},
               {.path = "devices.kind",
                .kind = Kind::choice,
                .default_text = "any",
                .choices = "any|gpu|tpu|sim|cpu",
                .doc = "Kind of device.",
                .store = REGROW_STORE(spec.devices.kind = value.text)},
               {.path = "devices.count",
                .kind = Kind::count,
                .default_text = "1",
                .max = 64,
                .doc = "Devices per rank; 0 = none.",
                .store = REGROW_STORE_U32(devices.count)},
               {.path = "devices.memory",
                .kind = Kind::size,
                .default_text = "0B",
                .max = 16 * kTiB,
                .example = "16GiB",
                .doc = "Memory each device has at least; 0B = any.",
                .store = REGROW_STORE(spec.devices.memory_bytes = value.number)}});
}

void add_program_rows(std::vector<SchemaRow>& rows) {
  rows.insert(
      rows.end(),
      {{.path = "interpreter",
        .kind = Kind::program,
        .example = "/usr/bin/python3",
        .doc =
            "Put before `command`. A full path, so that PATH cannot change what runs; without it "
            "command[0] is run itself.",
        .store = REGROW_STORE(spec.interpreter = value.text)},
       {.path = "command",
        .kind = Kind::arguments,
        .required = true,
        .example = "[train.py, --epochs, 10]",
        .doc = "The program's arguments, one list item each; no shell reads them.",
        .store = REGROW_STORE(spec.command = value.list)},
       {.path = "requires",
        .kind = Kind::modules,
        .example = "[torch]",
        .doc = "Python modules that `interpreter` must be able to import; checked before anything "
               "starts.",
        .store = REGROW_STORE(spec.requires_modules = value.list)},
       {.path = "rendezvous",
        .kind = Kind::choice,
        .default_text = "rank_zero",
        .choices = "rank_zero|store",
        .doc =
            "Where the ranks meet: at a port that rank 0's own script opens, or in a "
            "torch.distributed store that regrow runs beside rank 0 with `interpreter`. The store "
            "is up before the ranks and stays up over restarts, which saves them a second of "
            "waiting. For scripts that use `init_process_group` with env://.",
        .store = REGROW_STORE(spec.rendezvous = enum_of<Rendezvous>(value))},
       {.path = "working_directory",
        .kind = Kind::directory,
        .default_text = ".",
        .doc = "Where ranks start; a relative path starts at the recipe's directory.",
        .store = REGROW_STORE(spec.working_directory = value.text)},
       {.path = "env",
        .kind = Kind::environment,
        .example = "{OMP_NUM_THREADS: 1}",
        .doc = "Environment variables; values are taken as written."},
       {.path = "pass_env",
        .kind = Kind::variables,
        .example = "[HF_TOKEN]",
        .doc = "Variables taken from the submitter's environment, where set; no other gets in."},
       {.path = "limits", .doc = "Resource limits of each rank."},
       {.path = "limits.nofile",
        .kind = Kind::count,
        .default_text = "0",
        .max = 1u << 30,
        .example = "65536",
        .doc = "Open files (RLIMIT_NOFILE), at least 64; 0 = the hard limit.",
        .store = REGROW_STORE(spec.nofile = value.number)}});
}

void add_checkpoint_rows(std::vector<SchemaRow>& rows) {
  rows.insert(
      rows.end(),
      {{.path = "checkpoint", .doc = "Where checkpoints are and when one is complete."},
       {.path = "checkpoint.directory",
        .kind = Kind::directory,
        .example = "checkpoints",
        .doc = "Holds one entry per checkpoint; without it the job starts from its beginning.",
        .store = REGROW_STORE(spec.checkpoint.directory = value.text)},
       {.path = "checkpoint.storage",
        .kind = Kind::choice,
        .default_text = "shared",
        .choices = "shared|host_local",
        .doc = "A file system all hosts see, or each host's own disk, which is lost with it.",
        .store = REGROW_STORE(spec.checkpoint.storage = enum_of<StorageKind>(value))},
       {.path = "checkpoint.entry",
        .kind = Kind::step_name,
        .default_text = "step_{step}",
        .doc = "Name of a checkpoint, a file or a directory, with {step} for the step number.",
        .store = REGROW_STORE(spec.checkpoint.entry = value.text)},
       {.path = "checkpoint.shards",
        .kind = Kind::shard_name,
        .example = "rank_{rank}.pt",
        .doc = "File that must be there and not empty; with {rank}, one of each rank.",
        .store = REGROW_STORE(spec.checkpoint.shards = value.text)},
       {.path = "checkpoint.marker",
        .kind = Kind::file_name,
        .example = "COMPLETE",
        .doc = "File that is written last.",
        .store = REGROW_STORE(spec.checkpoint.marker = value.text)},
       {.path = "checkpoint.manifest",
        .kind = Kind::file_name,
        .example = "sizes.txt",
        .doc = "File of lines `SIZE NAME`; every file named must have that size.",
        .store = REGROW_STORE(spec.checkpoint.manifest = value.text)}});
}

void add_recovery_rows(std::vector<SchemaRow>& rows) {
  rows.insert(
      rows.end(),
      {{.path = "recovery",
        .kind = Kind::choice,
        .default_text = "job",
        .choices = "rank|group|job",
        .doc = "What is restarted when a rank is lost: the rank alone, while the others keep their "
               "process and rejoin through the rank library (needs `rendezvous: store`); or all "
               "ranks in place. `group` is treated as `job` for now.",
        .store = REGROW_STORE(spec.recovery = enum_of<RecoveryScope>(value))},
       {.path = "restarts",
        .doc = "How often the job is restarted, by what went wrong. One incident counts once, "
               "however many "
               "ranks it took; beyond the limit the job fails."},
       intensity_row("restarts.program", "3", "A rank ended with an error or crashed by itself."),
       intensity_row("restarts.killed", "10", "A signal from outside that regrow did not send."),
       intensity_row("restarts.out_of_memory", "2", "The kernel's out-of-memory killer."),
       intensity_row("restarts.early_exit", "3",
                     "A rank ended with 0 while others could not finish."),
       intensity_row("restarts.hang", "3", "No progress within `timeouts.progress`."),
       intensity_row("restarts.start_up", "3", "A rank could not be started."),
       intensity_row("restarts.device", "unlimited", "A device failed."),
       intensity_row("restarts.infrastructure", "unlimited", "A host, or regrow on it, was lost."),
       intensity_row("restarts.preempted", "unlimited", "A machine was taken back."),
       {.path = "restarts.CLASS.max",
        .kind = Kind::limit,
        .max = 1000000,
        .example = "5",
        .doc = "Restarts for this cause; CLASS is any of the causes above, written as a table.",
        .store = store_limit},
       {.path = "restarts.CLASS.window",
        .kind = Kind::window,
        .default_text = "ever",
        .min = kSecond,
        .max = 365 * kDay,
        .example = "1h",
        .doc = "Only incidents within this time count.",
        .store =
            [](JobSpec& spec, std::string_view path, const RecipeValue& value) {
              intensity_of(spec, path).window = duration_of(value);
            }},
       {.path = "restarts.max_without_progress",
        .kind = Kind::count,
        .default_text = "5",
        .min = 1,
        .max = 1000000,
        .doc = "Incidents of all causes in a row without a new checkpoint or a higher step.",
        .store = REGROW_STORE_U32(max_without_progress)},
       {.path = "restarts.healthy_for",
        .kind = Kind::duration,
        .default_text = "10m",
        .max = 365 * kDay,
        .doc = "Running this long with progress forgets earlier incidents.",
        .store = REGROW_STORE(spec.healthy_for = duration_of(value))},
       {.path = "restarts.backoff",
        .doc = "The pause before a restart; doubles from the second on."},
       {.path = "restarts.backoff.initial",
        .kind = Kind::duration,
        .default_text = "1s",
        .max = kDay,
        .doc = "Before the second restart without progress; the first is at once.",
        .store = REGROW_STORE(spec.backoff.initial = duration_of(value))},
       {.path = "restarts.backoff.cap",
        .kind = Kind::duration,
        .default_text = "5m",
        .max = kDay,
        .doc = "No pause is longer.",
        .store = REGROW_STORE(spec.backoff.cap = duration_of(value))},
       {.path = "success",
        .kind = Kind::choice,
        .default_text = "all_ranks",
        .choices = "all_ranks|rank_zero",
        .doc = "Who must exit with 0 for the job to be completed.",
        .store = REGROW_STORE(spec.success = enum_of<SuccessRule>(value))}});
}

void add_timing_rows(std::vector<SchemaRow>& rows) {
  rows.insert(
      rows.end(),
      {{.path = "timeouts", .doc = "How long things may take."},
       {.path = "timeouts.start",
        .kind = Kind::duration,
        .default_text = "15m",
        .max = 7 * kDay,
        .doc = "From start to first progress; 0s = no limit. Needs `progress.pattern` or "
               "`timeouts.progress` (no limit without).",
        .store = REGROW_STORE(spec.timeouts.start = duration_of(value))},
       {.path = "timeouts.progress",
        .kind = Kind::duration,
        .default_text = "0s",
        .max = 7 * kDay,
        .example = "2m",
        .doc =
            "Without progress for this long a rank hangs; 0s = not watched. Progress is a step: "
            "reported with regrow.step(), else a line of `progress.pattern`; without either, any "
            "output.",
        .store = REGROW_STORE(spec.timeouts.progress = duration_of(value))},
       {.path = "timeouts.stop_grace",
        .kind = Kind::duration,
        .default_text = "10s",
        .max = kDay,
        .doc = "From the stop signal to KILL.",
        .store = REGROW_STORE(spec.timeouts.stop_grace = duration_of(value))},
       {.path = "timeouts.finish",
        .kind = Kind::duration,
        .default_text = "1m",
        .min = 100 * kMillisecond,
        .max = 7 * kDay,
        .doc = "From the first rank's exit with 0 until all must have exited.",
        .store = REGROW_STORE(spec.timeouts.finish = duration_of(value))},
       {.path = "timeouts.host",
        .kind = Kind::duration,
        .default_text = "10s",
        .min = kSecond,
        .max = 7 * kDay,
        .doc = "Silence after which a host is given up (host_timeout).",
        .store = REGROW_STORE(spec.timeouts.host = duration_of(value))},
       {.path = "timeouts.max_unreachable",
        .kind = Kind::duration,
        .default_text = "10m",
        .min = kSecond,
        .max = 7 * kDay,
        .doc = "While its job makes progress a silent host is kept, but no longer than this.",
        .store = REGROW_STORE(spec.timeouts.max_unreachable = duration_of(value))},
       {.path = "timeouts.rejoin",
        .kind = Kind::duration,
        .default_text = "30s",
        .min = kSecond,
        .max = kDay,
        .doc = "With `recovery: rank`: from the call of a new generation until a survivor must "
               "have joined it; it is replaced otherwise.",
        .store = REGROW_STORE(spec.timeouts.rejoin = duration_of(value))},
       {.path = "stop", .doc = "How a rank is asked to end."},
       {.path = "stop.signal",
        .kind = Kind::choice,
        .default_text = "TERM",
        .choices = "TERM|INT|HUP|QUIT|USR1|USR2",
        .doc = "The first signal; KILL follows after the grace.",
        .store = REGROW_STORE(spec.stop_signal = value.text)},
       {.path = "stop.scope",
        .kind = Kind::choice,
        .default_text = "leader",
        .choices = "leader|group",
        .doc = "Who gets it: the rank's first process, or all it started. KILL goes to all.",
        .store = REGROW_STORE(spec.stop_scope = enum_of<StopScope>(value))}});
}

void add_output_rows(std::vector<SchemaRow>& rows) {
  rows.insert(rows.end(),
              {{.path = "progress",
                .doc = "How progress is read from the output of ranks that do not "
                       "report it themselves (docs/rank-api.md)."},
               {.path = "progress.pattern",
                .kind = Kind::pattern,
                .example = "'step (?P<step>[0-9]+)(.*loss (?P<loss>[0-9.]+))?'",
                .doc = "RE2 expression tried on every output line, with a group named `step` and "
                       "perhaps `loss`.",
                .store = REGROW_STORE(spec.progress_pattern = value.text)},
               {.path = "progress.total_steps",
                .kind = Kind::count,
                .default_text = "0",
                .max = 1000000000000000,
                .example = "1000",
                .doc = "For the progress bar; 0 = unknown.",
                .store = REGROW_STORE(spec.total_steps = value.number)},
               {.path = "logs", .doc = "What is kept of each rank's output."},
               {.path = "logs.cap",
                .kind = Kind::size,
                .default_text = "64MiB",
                .min = 64 * kKiB,
                .max = kTiB,
                .doc = "Most per stream and incarnation; beyond it the middle is dropped.",
                .store = REGROW_STORE(spec.logs.cap_bytes = value.number)},
               {.path = "logs.segment",
                .kind = Kind::size,
                .default_text = "8MiB",
                .min = 4 * kKiB,
                .max = kTiB,
                .doc = "Size at which a file is rotated; at most half of `cap`.",
                .store = REGROW_STORE(spec.logs.segment_bytes = value.number)}});
}

#undef REGROW_STORE
#undef REGROW_STORE_U32

}  // namespace

const std::vector<SchemaRow>& schema_table() {
  static const std::vector<SchemaRow> table = [] {
    std::vector<SchemaRow> rows;
    add_job_rows(rows);
    add_program_rows(rows);
    add_checkpoint_rows(rows);
    add_recovery_rows(rows);
    add_timing_rows(rows);
    add_output_rows(rows);
    return rows;
  }();
  return table;
}

}  // namespace regrow
