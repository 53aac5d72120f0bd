// Output: capped, rotated, readable from anywhere; scenario 28. And progress read from it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

namespace fs = std::filesystem;
using testing::read_text;
using testing::World;

uint64_t disk_use(const std::string& directory) {
  uint64_t sum = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    std::error_code gone;  // the shim rotates and removes while we look
    uint64_t size = entry.file_size(gone);
    if (!gone && entry.path().filename().string().starts_with("log.")) sum += size;
  }
  return sum;
}

LogQuery query_of(const IncarnationKey& key, const std::string& stream = "stdout") {
  LogQuery query;
  query.job = key.job;
  query.rank = key.rank;
  query.incarnation = key.incarnation;
  query.stream = stream;
  return query;
}

uint64_t resident_kib(uint64_t pid) {
  std::string status = read_text("/proc/" + std::to_string(pid) + "/status");
  size_t at = status.find("VmRSS:");
  return at == std::string::npos ? 0 : std::stoull(status.substr(at + 6));
}

TEST_CASE("scenario 28: a flood stays within its limit, head and tail are kept, reading is quick") {
  World world;
  world.spec.logs.cap_bytes = 8u << 20;
  world.spec.logs.segment_bytes = 1u << 20;
  auto key = world.spawn_python(R"(
import os, time
block = b''.join(b'line %09d\n' % i for i in range(20000))
end = time.time() + 2
count = 0
longest = 0
while time.time() < end:
    begin = time.time()
    os.write(1, block); os.write(2, block)
    longest = max(longest, time.time() - begin)
    count += 1
os.write(1, b'the very end\n')
open('written', 'w').write('%d %f' % (count, longest))
)");
  world.wait_running(key);
  world.pass(1);
  uint64_t shim = decode_pid_file(read_text(world.directory_of(key) + "/pid"))->shim_pid;
  CHECK(resident_kib(shim) < 4096);
  auto begin = std::chrono::steady_clock::now();
  LogQuery tail = query_of(key);
  tail.tail_lines = 20;
  LogChunk newest = world.runner->read_log(tail);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(100));
  CHECK(newest.data.size() > 100);
  CHECK(disk_use(world.directory_of(key)) <= 2 * (9u << 20) + 1000);

  world.wait_final(key);
  double count = 0, longest = 0;
  std::istringstream(read_text(world.directory.path() + "/written")) >> count >> longest;
  INFO("both streams at " << count * 0.3 << " MB/s, longest pair of writes " << longest << " s");
  CHECK(longest < 1.0);  // a loaded machine takes some of it
  CHECK(disk_use(world.directory_of(key)) <= 2 * (9u << 20) + 1000);
  LogChunk end = world.runner->read_log(tail);
  CHECK(end.data.ends_with("the very end\n"));
  CHECK(std::count(end.data.begin(), end.data.end(), '\n') == 20);
  CHECK(end.at_end);

  // Head, then the gap with its size, then the tail.
  LogQuery head = query_of(key);
  head.max_bytes = 1u << 20;
  LogChunk first = world.runner->read_log(head);
  CHECK(first.data.starts_with("line 000000000\n"));
  CHECK(first.next_offset == 1u << 20);
  head.offset = first.next_offset;
  LogChunk second = world.runner->read_log(head);
  auto dropped = static_cast<uint64_t>(count) * 300000 + 13 - 8 * (1u << 20);
  CHECK(second.note.ends_with(" bytes dropped here (log limit)"));
  CHECK(std::abs(std::stod(second.note) - static_cast<double>(dropped)) <= 1u << 20);
  CHECK(read_text(world.directory_of(key) + "/log.stdout.gap")
            .starts_with(std::to_string(std::stoull(second.note))));
  // Read on to the end: what was written after the gap is whole.
  uint64_t sum = first.data.size();
  for (LogChunk chunk = second;; chunk = world.runner->read_log(head)) {
    sum += chunk.data.size();
    head.offset = chunk.next_offset;
    if (chunk.at_end) break;
  }
  CHECK(sum + std::stoull(second.note) == static_cast<uint64_t>(count) * 300000 + 13);
}

TEST_CASE("last words are whole lines of the newest output, also of a helper's") {
  World world;
  auto key = world.spawn_python(R"(
import os, sys
for i in range(3000): print('stderr line', i, file=sys.stderr)
if os.fork() == 0:
    os.setsid()
    print('Traceback (most recent call last):\n  in helper\nmypackage.errors.ShapeError: 3 != 4\n\ncleanup done', file=sys.stderr, flush=True)
    os._exit(0)
os.wait()
os.kill(os.getpid(), 6)
)");
  RankReport end = world.wait_final(key);
  CHECK(end.signal == 6);
  CHECK(end.last_words.size() <= 8192);
  CHECK(end.last_words.size() > 8000);
  CHECK(end.last_words.starts_with("stderr line "));
  CHECK(end.last_words.ends_with("cleanup done\n"));
  CHECK(end.error_line == "mypackage.errors.ShapeError: 3 != 4");
}

TEST_CASE("output is drained to its end even if a stranger holds the pipe") {
  World world;
  auto key = world.spawn_shell("head -c 300000 /dev/zero | tr '\\0' x; echo end");
  RankReport end = world.wait_final(key);
  CHECK(end.last_words.ends_with("xend\n"));
  LogQuery query = query_of(key);
  query.offset = 300000;
  CHECK(world.runner->read_log(query).data == "end\n");
}

TEST_CASE("output that is not text does no harm") {
  World world;
  auto key = world.spawn_shell("printf 'a\\377\\000b\\303\\244\\n' >&2; exit 1");
  CHECK(world.wait_final(key).last_words == "a??b\xc3\xa4\n");
  CHECK(world.log(key, "stderr") == std::string("a\xff\0b\xc3\xa4\n", 7));
}

TEST_CASE("reading logs: by offset, by lines, of the newest incarnation, of none") {
  World world;
  auto key = world.spawn_shell("seq 1 1000; printf open");
  world.wait_final(key);
  LogQuery query = query_of(key);
  query.incarnation = {};
  query.tail_lines = 3;
  LogChunk chunk = world.runner->read_log(query);
  CHECK(chunk.data == "999\n1000\nopen");
  CHECK(chunk.incarnation == key.incarnation);
  CHECK(chunk.at_end);
  query.tail_lines = 100000;
  query.max_bytes = 8;
  chunk = world.runner->read_log(query);
  CHECK(chunk.data == "1\n2\n3\n4\n");
  CHECK(chunk.next_offset == 8);
  CHECK_FALSE(chunk.at_end);
  query.tail_lines = 0;
  query.offset = 1u << 30;
  CHECK(world.runner->read_log(query).data.empty());
  query.rank = {55};
  chunk = world.runner->read_log(query);
  CHECK(chunk.at_end);
  CHECK(chunk.note == "no stdout of rank 55 of job 7 is kept on host h1");
}

TEST_CASE("step and loss are read from the output as it grows") {
  World world;
  world.spec.progress_pattern = R"(step (?P<step>\d+) loss (?P<loss>[-+.\deE]+))";
  auto key = world.spawn_shell(
      "for i in 1 2 3 4; do echo \"[t] step $i loss 0.$i\"; sleep 0.1; done; printf 'step 9'; "
      "sleep 0.1; "
      "printf ' loss 1e-3\\r'; sleep 0.1; echo 'no step here' >&2; read x < /dev/zero");
  REQUIRE(world.wait_until([&] {
    auto progress = world.runner->moved();
    return !progress.empty() && progress[0].step == 4;
  }));
  auto four = world.runner->progress().at(0);
  CHECK(four.loss == Approx(0.4));
  CHECK(four.step_seconds > 0.05);
  CHECK(four.step_seconds < 0.5);
  CHECK(four.output_us > 0);
  CHECK_FALSE(four.stopped);
  REQUIRE(world.wait_until([&] { return world.runner->progress().at(0).step == 9; }));
  CHECK(world.runner->progress().at(0).loss == Approx(0.001));
  world.restart_runner();
  CHECK(world.runner->progress().at(0).step == 9);
  world.stop(key, 0, true);
  CHECK(world.wait_final(key).last_step == 9);
}

TEST_CASE("without a pattern output alone is progress") {
  World world;
  world.spawn_shell("echo one; sleep 100");
  REQUIRE(world.wait_until([&] { return !world.runner->moved().empty(); }));
  CHECK(world.runner->moved().empty());
  auto progress = world.runner->progress().at(0);
  CHECK(progress.step == -1);
  CHECK(std::isnan(progress.loss));
  CHECK(progress.output_us > 0);
}

TEST_CASE("a broken pattern counts as none") {
  World world;
  world.spec.progress_pattern = "step (?P<step>";
  world.spawn_shell("echo step 1; sleep 100");
  REQUIRE(world.wait_until([&] { return !world.runner->moved().empty(); }));
  CHECK(world.runner->progress().at(0).step == -1);
}

TEST_CASE("the line that names a failure") {
  CHECK(find_error_line("Traceback\n  File x\ntorch.cuda.OutOfMemoryError: CUDA out of memory\n",
                        "") == "torch.cuda.OutOfMemoryError: CUDA out of memory");
  CHECK(find_error_line("[rank3]: RuntimeError: Connection closed by peer\nsome warning\n", "") ==
        "RuntimeError: Connection closed by peer");
  CHECK(find_error_line("KeyboardInterrupt\n", "") == "KeyboardInterrupt");
  CHECK(find_error_line("segfault somewhere\n\n", "ignored\n") == "segfault somewhere");
  CHECK(find_error_line("", "only output\n") == "only output");
  CHECK(find_error_line("", "").empty());
}

}  // namespace
}  // namespace regrow
