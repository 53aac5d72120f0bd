#include "journal/rocks_store.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <filesystem>

namespace regrow::rocks {

namespace {

constexpr const char* kFamilyNames[kFamilies] = {"default", "events", "by_entity", "snapshots",
                                                 "meta"};

// Takes the place of RocksDB's LOG files: warnings go to the owner, the rest nowhere.
class WarningLogger final : public rocksdb::Logger {
 public:
  explicit WarningLogger(std::function<void(const std::string&)> sink)
      : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL), sink_(std::move(sink)) {}

  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list arguments) override {
    if (level < rocksdb::InfoLogLevel::WARN_LEVEL || level > rocksdb::InfoLogLevel::FATAL_LEVEL)
      return;
    char text[1024];
    std::vsnprintf(text, sizeof(text), format, arguments);
    if (sink_) sink_(std::string("journal store: ") + text);
  }

 private:
  std::function<void(const std::string&)> sink_;
};

rocksdb::Options base_options(const RocksJournalOptions& options, Recovery recovery) {
  rocksdb::Options out;
  out.create_if_missing = true;
  out.create_missing_column_families = true;
  // To salvage is to take what there is: a missing file then fails what is read from it, not all.
  out.paranoid_checks = recovery == Recovery::strict_middle;
  // A torn tail is an append that nobody was told of; a damaged middle must not pass for an end.
  out.wal_recovery_mode = recovery == Recovery::strict_middle
                              ? rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords
                              : rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  out.recycle_log_file_num = 0;
  // Families are flushed together: none can be ahead of the log after a crash.
  out.atomic_flush = true;
  out.write_buffer_size = options.memtable_bytes;
  out.max_total_wal_size = 64u << 20;
  out.max_background_jobs = 2;
  out.max_open_files = 256;
  out.stats_dump_period_sec = 0;
  out.stats_persist_period_sec = 0;
  out.info_log = std::make_shared<WarningLogger>(options.on_warning);

  rocksdb::BlockBasedTableOptions table;
  table.block_size = 64u << 10;
  table.block_cache = rocksdb::NewLRUCache(16u << 20);
  out.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  auto supported = rocksdb::GetSupportedCompressions();
  bool zstd = std::find(supported.begin(), supported.end(), rocksdb::kZSTD) != supported.end();
  out.compression = zstd ? rocksdb::kZSTD : rocksdb::kNoCompression;
  return out;
}

bool mentions_full_disk(const std::string& text) {
  return text.find("No space left") != std::string::npos ||
         text.find("quota exceeded") != std::string::npos;
}

}  // namespace

Store::~Store() {
  if (!db) return;
  for (auto* handle : families) db->DestroyColumnFamilyHandle(handle);
  db->Close().PermitUncheckedError();
}

JournalResult<std::unique_ptr<Store>> open_store(const RocksJournalOptions& options,
                                                 Recovery recovery) {
  rocksdb::Options base = base_options(options, recovery);
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const char* name : kFamilyNames) families.emplace_back(name, base);

  auto store = std::make_unique<Store>();
  store->directory = options.directory;
  std::string path = options.directory + "/db";
  std::error_code ignored;
  if (!options.read_only)
    std::filesystem::create_directory(path, ignored);  // RocksDB warns if it has to
  rocksdb::DB* db = nullptr;
  rocksdb::Status status =
      options.read_only ? rocksdb::DB::OpenForReadOnly(base, path, families, &store->families, &db)
                        : rocksdb::DB::Open(base, path, families, &store->families, &db);
  if (!status.ok()) return error_of(status, options.directory, "opening it");
  store->db.reset(db);
  return store;
}

JournalError damage(const std::string& directory, const std::string& what) {
  return {JournalFault::corrupt,
          directory + ": the journal is damaged: " + what +
              ". Nothing was changed. Either restore a backup, or go on with the events before the "
              "damage (a copy of all is kept): regrow journal salvage " +
              directory};
}

JournalError error_of(const rocksdb::Status& status, const std::string& directory,
                      const std::string& doing) {
  std::string text = status.ToString();
  if (status.IsNoSpace() || mentions_full_disk(text)) {
    return {JournalFault::no_space, directory + ": no space left while " + doing + " (" + text +
                                        "). Free some space; regrow goes on by itself then."};
  }
  if (status.IsCorruption()) return damage(directory, text);
  return {JournalFault::io, directory + ": failed while " + doing + ": " + text +
                                ". Check the disk and the directory's owner, then start again."};
}

std::string event_key(uint64_t seq) {
  std::string key(8, '\0');
  for (int i = 7; i >= 0; --i, seq >>= 8) key[i] = static_cast<char>(seq & 0xff);
  return key;
}

uint64_t seq_of(std::string_view event_key) {
  uint64_t seq = 0;
  for (char c : event_key.substr(0, 8)) seq = seq << 8 | static_cast<uint8_t>(c);
  return seq;
}

std::string index_key(std::string_view path, uint64_t seq) {
  std::string key(path);
  key += '\0';
  key += event_key(seq);
  return key;
}

bool split_index_key(rocksdb::Slice key, std::string_view& path, uint64_t& seq) {
  if (key.size() < 10 || key[key.size() - 9] != '\0') return false;
  path = view(key).substr(0, key.size() - 9);
  seq = seq_of(view(key).substr(key.size() - 8));
  return true;
}

}  // namespace regrow::rocks
