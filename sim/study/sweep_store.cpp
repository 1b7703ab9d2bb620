#include "sim/study/sweep_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/study/sweep_scenarios.h"

namespace shardsim {

namespace {

constexpr const char* kSchema = "2";

constexpr const char* kTables =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE points (point INTEGER PRIMARY KEY, key TEXT NOT NULL, labels TEXT NOT NULL);"
    "CREATE TABLE rows (key TEXT PRIMARY KEY, error TEXT, step_time_s REAL, tokens_per_s REAL,"
    " tokens_per_s_per_gpu REAL, mfu REAL, exposed_comm_s REAL, overlap_fraction REAL,"
    " peak_bytes INTEGER, headroom_bytes INTEGER, fits INTEGER, gpus INTEGER, params INTEGER,"
    " cost REAL, budget_hours REAL, budget_gpu_hours REAL, budget_cost REAL) WITHOUT ROWID;";

[[noreturn]] void fail(const std::string& path, sqlite3* db, const char* doing) {
  const std::string why = db != nullptr ? sqlite3_errmsg(db) : "no memory";
  throw Error(fmt::format("{}: {}", doing, why), {path});
}

void run(sqlite3* db, const std::string& path, const char* sql, const char* doing) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail(path, db, doing);
}

class Statement {
 public:
  Statement(sqlite3* db, const std::string& path, const char* sql) : db_(db), path_(path) {
    if (sqlite3_prepare_v2(db, sql, -1, &s_, nullptr) != SQLITE_OK)
      fail(path, db, "cannot be read");
  }
  ~Statement() { sqlite3_finalize(s_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& text(std::string_view v) {
    sqlite3_bind_text(s_, ++at_, v.data(), static_cast<int>(v.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Statement& number(double v) {
    sqlite3_bind_double(s_, ++at_, v);
    return *this;
  }
  Statement& whole(int64_t v) {
    sqlite3_bind_int64(s_, ++at_, v);
    return *this;
  }
  Statement& null() {
    sqlite3_bind_null(s_, ++at_);
    return *this;
  }
  // Whether there is a row to read.
  bool step() {
    const int code = sqlite3_step(s_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) fail(path_, db_, "cannot be read or written");
    return false;
  }
  void again() {
    step();
    sqlite3_reset(s_);
    at_ = 0;
  }
  std::string text_of(int i) const {
    const auto* t = reinterpret_cast<const char*>(sqlite3_column_text(s_, i));
    return t == nullptr ? "" : std::string(t, static_cast<size_t>(sqlite3_column_bytes(s_, i)));
  }
  double number_of(int i) const { return sqlite3_column_double(s_, i); }
  int64_t whole_of(int i) const { return sqlite3_column_int64(s_, i); }
  bool is_null(int i) const { return sqlite3_column_type(s_, i) == SQLITE_NULL; }

 private:
  sqlite3* db_;
  const std::string& path_;
  sqlite3_stmt* s_ = nullptr;
  int at_ = 0;
};

std::string meta(sqlite3* db, const std::string& path, const char* key) {
  Statement s(db, path, "SELECT value FROM meta WHERE key = ?");
  return s.text(key).step() ? s.text_of(0) : "";
}

bool is_empty(sqlite3* db, const std::string& path) {
  Statement s(db, path, "SELECT count(*) FROM sqlite_master");
  return s.step() && s.whole_of(0) == 0;
}

// A file that is no store of this program's is never written to.
void require_store(sqlite3* db, const std::string& path) {
  Statement s(db, path,
              "SELECT count(*) FROM sqlite_master WHERE name IN ('meta', 'points', 'rows')");
  if (!s.step() || s.whole_of(0) != 3)
    throw Error("this is no store of a sweep", {path}, "--store names another file");
  const std::string schema = meta(db, path, "schema");
  if (schema != kSchema)
    throw Error(fmt::format("this store has schema {}, and this shardsim writes {}",
                            schema.empty() ? "none" : schema, kSchema),
                {path}, "sweep into a new store, or use the shardsim that made it");
}

std::vector<std::string> list_of(const std::string& json, const std::string& path) {
  try {
    return nlohmann::json::parse(json).get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw Error("this store is damaged: a list of labels cannot be read", {path});
  }
}

}  // namespace

namespace {

std::string text_of(const Requirements& r) {
  nlohmann::json j;
  j["fits"] = r.fits;
  j["bounds"] = nlohmann::json::array();
  for (const Bound& b : r.bounds)
    j["bounds"].push_back(
        {{"figure", b.figure}, {"at_most", b.at_most}, {"value", b.value}, {"text", b.text}});
  return j.dump();
}

Requirements requirements_of(const std::string& text, const std::string& path) {
  try {
    const nlohmann::json j = nlohmann::json::parse(text);
    Requirements r;
    r.fits = j.at("fits").get<bool>();
    for (const nlohmann::json& b : j.at("bounds"))
      r.bounds.push_back({b.at("figure").get<std::string>(), b.at("at_most").get<bool>(),
                          b.at("value").get<double>(), b.at("text").get<std::string>()});
    return r;
  } catch (const nlohmann::json::exception&) {
    throw Error("this store is damaged: what its study requires cannot be read", {path});
  }
}

}  // namespace

// FNV-1a, 128 bits as two of 64 from different bases.
std::string short_key(std::string_view text) {
  uint64_t a = 0xcbf29ce484222325, b = 0x84222325cbf29ce4;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001b3 + (a >> 57);
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

SweepStore::~SweepStore() {
  // One file is left, not three; and none of a sweep that has found nothing.
  bool empty = false;
  if (db_ != nullptr && lock_ >= 0) {
    sqlite3_exec(db_, "PRAGMA journal_mode = DELETE", nullptr, nullptr, nullptr);
    try {
      Statement s(db_, path_, "SELECT count(*) FROM rows");
      empty = made_ && s.step() && s.whole_of(0) == 0;
    } catch (const Error&) {
      empty = false;
    }
  }
  sqlite3_close(db_);
  if (empty) ::unlink(path_.c_str());
  // Behind the database: closing a file drops the process's locks of it.
  if (lock_ >= 0) ::close(lock_);
}

void SweepStore::open_for_writing(const std::string& path) {
  path_ = path;
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw Error(fmt::format("cannot be written: {}", std::strerror(errno)), {path},
                "--store names another file");
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0)
    throw Error("another sweep writes to this store", {path},
                "wait for it, or give each its own --store and merge them");
  if (sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK)
    fail(path, db_, "cannot be opened");
  sqlite3_busy_timeout(db_, 10'000);
  run(db_, path, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", "cannot be opened");
}

void SweepStore::make(const StoredSweep& sweep) {
  run(db_, path_, "BEGIN IMMEDIATE", "cannot be written");
  run(db_, path_, kTables, "cannot be written");
  const nlohmann::json axes = sweep.axes;
  Statement insert(db_, path_, "INSERT INTO meta VALUES (?, ?)");
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"schema", kSchema},
           {"study", sweep.study},
           {"name", sweep.name},
           {"question", sweep.question},
           {"require", text_of(sweep.require)},
           {"axes", axes.dump()},
           {"scenarios", sweep.scenarios}})
    insert.text(key).text(value).again();
  run(db_, path_, "COMMIT", "cannot be written");
  made_ = true;
}

// By way of the other constructor, so that what is thrown here still closes what was opened.
SweepStore::SweepStore(const std::string& path, const Study& study) : SweepStore() {
  open_for_writing(path);
  if (is_empty(db_, path_)) {
    StoredSweep sweep;
    sweep.name = study.name();
    sweep.question = study.question();
    sweep.study = study.text();
    sweep.scenarios = scenario_parts(study);
    sweep.require = study.require();
    for (const Axis& a : study.axes()) sweep.axes.push_back(a.name);
    make(sweep);
    return;
  }
  require_store(db_, path_);
  if (meta(db_, path_, "study") != study.text())
    throw Error("this store is of another study, or of this one before it was changed", {path},
                "--store names another file; a store that is no longer wanted may be removed");
  Statement replace(db_, path_, "UPDATE meta SET value = ? WHERE key = 'require'");
  replace.text(text_of(study.require())).again();
}

std::unordered_set<std::string> SweepStore::finished() const {
  std::unordered_set<std::string> out;
  Statement s(db_, path_, "SELECT key FROM rows");
  while (s.step()) out.insert(s.text_of(0));
  return out;
}

void SweepStore::add(const std::vector<StoredPoint>& points, const std::vector<SweepRow>& rows) {
  run(db_, path_, "BEGIN IMMEDIATE", "cannot be written");
  {
    Statement insert(db_, path_, "INSERT OR REPLACE INTO points VALUES (?, ?, ?)");
    for (const StoredPoint& p : points)
      insert.whole(p.point).text(p.key).text(nlohmann::json(p.labels).dump()).again();
  }
  {
    Statement insert(db_, path_,
                     "INSERT OR REPLACE INTO rows VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    for (const SweepRow& r : rows) {
      insert.text(r.key);
      if (r.error.empty())
        insert.null();
      else
        insert.text(r.error);
      for (double v : {r.step_time_s, r.tokens_per_s, r.tokens_per_s_per_gpu, r.mfu,
                       r.exposed_comm_s, r.overlap_fraction})
        insert.number(v);
      insert.whole(r.peak_bytes).whole(r.headroom_bytes).whole(r.fits ? 1 : 0);
      insert.whole(r.gpus).whole(r.params);
      for (const std::optional<double>& v :
           {r.cost, r.budget_hours, r.budget_gpu_hours, r.budget_cost}) {
        if (v)
          insert.number(*v);
        else
          insert.null();
      }
      insert.again();
    }
  }
  run(db_, path_, "COMMIT", "cannot be written");
}

StoredSweep SweepStore::read(const std::string& path) {
  if (!std::filesystem::exists(path))
    throw Error("there is no such store", {path}, "a sweep makes it");
  SweepStore store;
  store.path_ = path;
  if (sqlite3_open_v2(path.c_str(), &store.db_, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK)
    fail(path, store.db_, "cannot be opened");
  sqlite3_busy_timeout(store.db_, 10'000);
  require_store(store.db_, path);
  StoredSweep out;
  out.name = meta(store.db_, path, "name");
  out.question = meta(store.db_, path, "question");
  out.study = meta(store.db_, path, "study");
  out.scenarios = meta(store.db_, path, "scenarios");
  out.require = requirements_of(meta(store.db_, path, "require"), path);
  out.axes = list_of(meta(store.db_, path, "axes"), path);
  Statement points(store.db_, path, "SELECT point, key, labels FROM points ORDER BY point");
  while (points.step())
    out.points.push_back({points.whole_of(0), points.text_of(1), list_of(points.text_of(2), path)});
  Statement rows(store.db_, path, "SELECT * FROM rows");
  while (rows.step()) {
    SweepRow r;
    r.key = rows.text_of(0);
    r.error = rows.text_of(1);
    r.step_time_s = rows.number_of(2);
    r.tokens_per_s = rows.number_of(3);
    r.tokens_per_s_per_gpu = rows.number_of(4);
    r.mfu = rows.number_of(5);
    r.exposed_comm_s = rows.number_of(6);
    r.overlap_fraction = rows.number_of(7);
    r.peak_bytes = rows.whole_of(8);
    r.headroom_bytes = rows.whole_of(9);
    r.fits = rows.whole_of(10) != 0;
    r.gpus = rows.whole_of(11);
    r.params = rows.whole_of(12);
    int column = 13;
    for (std::optional<double>* v :
         {&r.cost, &r.budget_hours, &r.budget_gpu_hours, &r.budget_cost}) {
      if (!rows.is_null(column)) *v = rows.number_of(column);
      ++column;
    }
    out.rows.emplace(r.key, std::move(r));
  }
  return out;
}

void SweepStore::merge(const std::vector<std::string>& from, const std::string& path) {
  if (std::filesystem::exists(path))
    throw Error("is there already", {path}, "merge into a new store");
  std::vector<StoredSweep> all;
  for (const std::string& f : from) {
    all.push_back(read(f));
    if (all.back().study != all.front().study)
      throw Error(fmt::format("this store is of another study than {}", from.front()), {f});
  }
  const std::string unfinished = path + ".part";
  std::filesystem::remove(unfinished);
  {
    SweepStore store;
    store.open_for_writing(unfinished);
    store.make(all.front());
    for (const StoredSweep& s : all) {
      std::vector<SweepRow> rows;
      for (const auto& [key, row] : s.rows) rows.push_back(row);
      store.add(s.points, rows);
    }
    run(store.db_, unfinished, "PRAGMA journal_mode = DELETE", "cannot be written");
  }
  std::filesystem::rename(unfinished, path);
}

}  // namespace shardsim
