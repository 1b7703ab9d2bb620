#include "sim/study/sweep_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "sim/base/error.h"
#include "sim/base/input_file.h"
#include "sim/study/sweep_scenarios.h"

namespace shardsim {

namespace {

constexpr const char* kSchema = "3";
// Of the header's application_id, "SHDS": what is no store is known without opening it as a database.
constexpr uint32_t kApplication = 0x53484453;
// Beyond these a figure is none that is written, nor one that can be shown.
constexpr double kLongest = 9.2e6;   // seconds, as Time holds them
constexpr double kLargest = 9.0e18;  // anything

constexpr const char* kTables =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE points (point INTEGER PRIMARY KEY, key TEXT NOT NULL, labels TEXT NOT NULL);"
    "CREATE TABLE rows (key TEXT PRIMARY KEY, error TEXT, step_time_s REAL, tokens_per_s REAL,"
    " tokens_per_s_per_gpu REAL, mfu REAL, exposed_comm_s REAL, overlap_fraction REAL,"
    " peak_bytes INTEGER, headroom_bytes INTEGER, fits INTEGER, gpus INTEGER, params INTEGER,"
    " cost REAL, budget_hours REAL, budget_gpu_hours REAL, budget_cost REAL) WITHOUT ROWID;";

[[noreturn]] void damaged(const std::string& path, std::string_view what) {
  throw Error(fmt::format("this store is damaged: {}", what), {path},
              "sweep into a new one, with another --store");
}

// A name is never a URI, nor SQLite's own word for a database in memory.
std::string plain(const std::string& path) { return path.starts_with('/') ? path : "./" + path; }

// The file's first bytes; Error where it cannot be read.
std::string header_of(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) throw Error("there is no such store", {path}, "a sweep makes it");
    throw Error(fmt::format("cannot be read: {}", std::strerror(errno)), {path});
  }
  if (!S_ISREG(file.st_mode)) throw Error("this is no file, and no store of a sweep", {path});
  InputFile input(path);
  std::string header(100, '\0');
  size_t got = 0;
  while (const size_t n = input.read({header.data() + got, header.size() - got})) got += n;
  header.resize(got);
  return header;
}

constexpr std::string_view kMagic{"SQLite format 3\0", 16};

// A file that is no store of this program's is never opened as a database, which may change it.
void require_header(const std::string& header, const std::string& path) {
  if (!header.starts_with(kMagic) || header.size() < 100)
    throw Error("this is no store of a sweep", {path}, "--store names another file");
  uint32_t application = 0;
  for (size_t i = 68; i < 72; ++i)
    application = application << 8 | static_cast<unsigned char>(header[i]);
  if (application != kApplication)
    throw Error("this is no store of a sweep, or that of an older shardsim", {path},
                "--store names another file");
}

[[noreturn]] void fail(const std::string& path, sqlite3* db, const char* doing) {
  const int code = db != nullptr ? sqlite3_errcode(db) : SQLITE_NOMEM;
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) damaged(path, sqlite3_errmsg(db));
  const std::string why = db != nullptr ? sqlite3_errmsg(db) : "no memory";
  throw Error(fmt::format("{}: {}", doing, why), {path});
}

void run(sqlite3* db, const std::string& path, const char* sql, const char* doing) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail(path, db, doing);
}

bool is_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
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
  // The same, Error where it is anything else.
  std::string read_text(int i) const {
    if (sqlite3_column_type(s_, i) != SQLITE_TEXT) damaged(path_, "a text is none");
    std::string out = text_of(i);
    if (!is_utf8(out)) damaged(path_, "a text is not UTF-8");
    return out;
  }
  int64_t read_whole(int i) const {
    if (sqlite3_column_type(s_, i) != SQLITE_INTEGER) damaged(path_, "a whole number is none");
    return whole_of(i);
  }
  double read_number(int i, double largest) const {
    const int type = sqlite3_column_type(s_, i);
    const double v = sqlite3_column_double(s_, i);
    if ((type != SQLITE_FLOAT && type != SQLITE_INTEGER) || !(v >= 0 && v <= largest))
      damaged(path_, "a figure is none");
    return v;
  }
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

void require_store(sqlite3* db, const std::string& path) {
  Statement s(db, path,
              "SELECT count(*) FROM sqlite_master WHERE name IN ('meta', 'points', 'rows')");
  if (!s.step() || s.whole_of(0) != 3) damaged(path, "a table is missing");
  const std::string schema = meta(db, path, "schema");
  if (schema != kSchema)
    throw Error(fmt::format("this store has schema {}, and this shardsim writes {}",
                            schema.empty() ? "none" : schema, kSchema),
                {path}, "sweep into a new store, or use the shardsim that made it");
}

// Axes' names, or a point's place on each.
std::vector<std::string> list_of(const std::string& json, const std::string& path) {
  try {
    return nlohmann::json::parse(json).get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    damaged(path, "a list of labels cannot be read");
  }
}

void check_scenarios(const std::string& text, size_t axes, const std::string& path) {
  try {
    const nlohmann::json parts = nlohmann::json::parse(text);
    bool right = parts.at("axes").size() == axes;
    for (const nlohmann::json& axis : parts.at("axes"))
      for (const nlohmann::json& place : axis.at("places"))
        right = right && place.at("label").is_string() && place.at("settings").is_array();
    if (right) return;
  } catch (const nlohmann::json::exception&) {
    damaged(path, "its scenarios cannot be read");
  }
  damaged(path, "its scenarios are not those of its axes");
}

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
    damaged(path, "what its study requires cannot be read");
  }
}

}  // namespace

bool is_database(const std::string& path) {
  try {
    return header_of(path).starts_with(kMagic);
  } catch (const Error&) {
    return false;
  }
}

SweepStore::~SweepStore() {
  // One file is left, not three.
  if (db_ != nullptr && lock_ >= 0)
    sqlite3_exec(db_, "PRAGMA journal_mode = DELETE", nullptr, nullptr, nullptr);
  sqlite3_close(db_);
  if (!made_) ::unlink(path_.c_str());
  // Behind the database: closing a file drops the process's locks of it.
  if (lock_ >= 0) ::close(lock_);
}

void SweepStore::lock(const std::string& path) {
  path_ = path;
  if (path == ":memory:")
    throw Error("--store: expected a file's name, got ':memory:'", {},
                "a sweep in memory would be lost");
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (lock_ >= 0)
    made_ = false;
  else if (errno == EEXIST)
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw Error(fmt::format("cannot be written: {}", std::strerror(errno)), {path},
                "--store names another file");
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    made_ = true;
    throw Error("another sweep writes to this store", {path},
                "wait for it, or give each its own --store and merge them");
  }
}

void SweepStore::open_for_writing() {
  if (sqlite3_open_v2(plain(path_).c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK)
    fail(path_, db_, "cannot be opened");
  sqlite3_busy_timeout(db_, 10'000);
}

void SweepStore::make(const StoredSweep& sweep) {
  run(db_, path_, "BEGIN IMMEDIATE", "cannot be written");
  run(db_, path_, fmt::format("PRAGMA application_id = {}", kApplication).c_str(),
      "cannot be written");
  run(db_, path_, kTables, "cannot be written");
  const nlohmann::json axes = sweep.axes;
  Statement insert(db_, path_, "INSERT INTO meta VALUES (?, ?)");
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"schema", kSchema},
           {"version", sweep.version},
           {"total", std::to_string(sweep.total)},
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
  const int64_t total = study.count();
  if (total == 0)
    throw Error("no point is left", {}, "the study's skip and only leave every point out");
  lock(path);
  const std::string header = header_of(path);
  if (!header.empty()) require_header(header, path);
  open_for_writing();
  if (header.empty()) {
    StoredSweep sweep;
    sweep.name = study.name();
    sweep.question = study.question();
    sweep.study = study.text();
    sweep.scenarios = scenario_parts(study);
    sweep.require = study.require();
    sweep.version = SHARDSIM_VERSION;
    sweep.total = total;
    for (const Axis& a : study.axes()) sweep.axes.push_back(a.name);
    make(sweep);
  } else {
    require_store(db_, path);
    if (const std::string version = meta(db_, path, "version"); version != SHARDSIM_VERSION)
      throw Error(
          fmt::format("this store is of shardsim {}, and this is {}", version, SHARDSIM_VERSION),
          {path}, "another --store: versions may say different things of a scenario");
    if (meta(db_, path, "study") != study.text())
      throw Error(
          "this store is of another study, or of this one before it or a file that it names was "
          "changed",
          {path}, "--store names another file; a store that is no longer wanted may be removed");
  }
  run(db_, path, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", "cannot be opened");
  Statement replace(db_, path_, "UPDATE meta SET value = ? WHERE key = 'require'");
  replace.text(text_of(study.require())).again();
}

bool SweepStore::any_played() const {
  Statement s(db_, path_, "SELECT 1 FROM rows WHERE error IS NULL LIMIT 1");
  return s.step();
}

std::unordered_set<std::string> SweepStore::finished() const {
  std::unordered_set<std::string> out;
  Statement s(db_, path_, "SELECT key FROM rows");
  while (s.step()) out.insert(s.text_of(0));
  return out;
}

void SweepStore::require_there() const {
  struct stat own {};
  if (::fstat(lock_, &own) != 0 || own.st_nlink > 0) return;
  throw Error("the store was removed while the sweep wrote to it: its rows are lost", {path_},
              "sweep again, into a store that is left alone");
}

void SweepStore::add(const std::vector<StoredPoint>& points, const std::vector<SweepRow>& rows) {
  require_there();
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
  require_header(header_of(path), path);
  SweepStore store;
  store.path_ = path;
  if (sqlite3_open_v2(plain(path).c_str(), &store.db_, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK)
    fail(path, store.db_, "cannot be opened");
  sqlite3_busy_timeout(store.db_, 10'000);
  require_store(store.db_, path);
  StoredSweep out;
  for (const auto& [key, into] :
       std::initializer_list<std::pair<const char*, std::string*>>{{"name", &out.name},
                                                                   {"question", &out.question},
                                                                   {"study", &out.study},
                                                                   {"scenarios", &out.scenarios},
                                                                   {"version", &out.version}}) {
    Statement s(store.db_, path, "SELECT value FROM meta WHERE key = ?");
    if (!s.text(key).step()) damaged(path, fmt::format("it does not say its {}", key));
    *into = s.read_text(0);
  }
  out.require = requirements_of(meta(store.db_, path, "require"), path);
  out.axes = list_of(meta(store.db_, path, "axes"), path);
  if (out.axes.empty()) damaged(path, "it has no axes");
  const std::string total = meta(store.db_, path, "total");
  const auto [end, code] = std::from_chars(total.data(), total.data() + total.size(), out.total);
  if (code != std::errc{} || end != total.data() + total.size() || out.total < 0)
    damaged(path, "its number of points is none");
  check_scenarios(out.scenarios, out.axes.size(), path);
  Statement points(store.db_, path, "SELECT point, key, labels FROM points ORDER BY point");
  while (points.step()) {
    StoredPoint p{points.read_whole(0), points.read_text(1), list_of(points.read_text(2), path)};
    if (p.labels.size() != out.axes.size() || p.point < 0)
      damaged(path, fmt::format("point {} has not a place on each axis", p.point));
    out.points.push_back(std::move(p));
  }
  if (out.total < std::ssize(out.points)) damaged(path, "it has more points than its study");
  Statement rows(
      store.db_, path,
      "SELECT key, error, step_time_s, tokens_per_s, tokens_per_s_per_gpu, mfu,"
      " exposed_comm_s, overlap_fraction, peak_bytes, headroom_bytes, fits, gpus, params,"
      " cost, budget_hours, budget_gpu_hours, budget_cost FROM rows");
  while (rows.step()) {
    SweepRow r;
    r.key = rows.read_text(0);
    if (!rows.is_null(1)) r.error = rows.read_text(1);
    r.step_time_s = rows.read_number(2, kLongest);
    r.tokens_per_s = rows.read_number(3, kLargest);
    r.tokens_per_s_per_gpu = rows.read_number(4, kLargest);
    r.mfu = rows.read_number(5, kLargest);
    r.exposed_comm_s = rows.read_number(6, kLongest);
    r.overlap_fraction = rows.read_number(7, kLargest);
    r.peak_bytes = rows.read_whole(8);
    r.headroom_bytes = rows.read_whole(9);
    r.fits = rows.read_whole(10) != 0;
    r.gpus = rows.read_whole(11);
    r.params = rows.read_whole(12);
    int column = 13;
    for (std::optional<double>* v :
         {&r.cost, &r.budget_hours, &r.budget_gpu_hours, &r.budget_cost}) {
      if (!rows.is_null(column)) *v = rows.read_number(column, kLargest);
      ++column;
    }
    out.rows.emplace(r.key, std::move(r));
  }
  return out;
}

namespace {

// A file beside the one to be, gone again if that does not come to be.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path)
      : path_(fmt::format("{}.{}-{:08x}.part", path, ::getpid(), std::random_device{}())) {}
  ~Unfinished() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::string& path() const { return path_; }
  // Where there is a file of that name meanwhile, it stays.
  void become(const std::string& path) {
    if (::link(path_.c_str(), path.c_str()) == 0) return;
    if (errno == EEXIST) throw Error("is there already", {path}, "merge into a new store");
    // Not every file system has links.
    if (::access(path.c_str(), F_OK) != 0 && ::rename(path_.c_str(), path.c_str()) == 0)
      return path_.clear();
    throw Error(fmt::format("cannot be written: {}", std::strerror(errno)), {path});
  }

 private:
  std::string path_;
};

}  // namespace

void SweepStore::merge(const std::vector<std::string>& from, const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) == 0)
    throw Error("is there already", {path}, "merge into a new store");
  if (path == ":memory:")
    throw Error("--store: expected a file's name, got ':memory:'", {}, "--store merged.db");
  Unfinished unfinished(path);
  {
    SweepStore store;
    std::optional<StoredSweep> first;
    std::map<std::string, SweepRow> known;
    for (const std::string& f : from) {
      StoredSweep s = read(f);
      if (first && s.study != first->study)
        throw Error(fmt::format("this store is of another study than {}, or of other contents of "
                                "the files that it names",
                                from.front()),
                    {f});
      if (first && s.version != first->version)
        throw Error(fmt::format("this store is of shardsim {}, and {} of {}", s.version,
                                from.front(), first->version),
                    {f}, "stores of one version can be merged");
      if (!first) {
        try {
          store.lock(unfinished.path());
        } catch (const Error& e) {
          throw Error(e.what(), {path}, e.hint());
        }
        store.open_for_writing();
        store.make(s);
      }
      std::vector<SweepRow> rows;
      for (const auto& [key, row] : s.rows) {
        const auto [at, fresh] = known.emplace(key, row);
        // An error names files by the way to them, and a machine may have been out of memory.
        const bool played = !fresh && at->second.error.empty();
        if (!fresh && !row.error.empty()) continue;
        if (fresh || !played)
          rows.push_back(at->second = row);
        else if (!(at->second == row))
          throw Error("this store says something else of a scenario than one before it", {f},
                      "they were not played by the same program: sweep again, into new stores");
      }
      store.add(s.points, rows);
      if (!first) {
        s.points.clear();
        s.rows.clear();
        first = std::move(s);
      }
    }
  }
  unfinished.become(path);
}

}  // namespace shardsim
