#include "report/anonymize/recordings.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "report/output_file.hpp"
#include "report/reading/input_file.hpp"
#include "report/symbols/embed_symbols.hpp"
#include "report/text/signal_cleanup.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/aggregate/state.hpp"
#include "trace/checkpoint_blocks.hpp"
#include "trace/log_format.hpp"
#include "trace/log_ring.hpp"
#include "trace/log_writer.hpp"

namespace memlab::report {

namespace {

using json = nlohmann::ordered_json;

/// Of a copy with a ring: the number of its only region, whose place is the first of as many. Not
/// 0: then no records were missing.
constexpr std::uint32_t newest_region = 2;

/// Passes a log's records on to a writer. Of a log that lacks records between its beginning and
/// its newest part: those of the newest part to another writer, with a checkpoint in front.
class LogCopy final : public trace::GenericSink<LogCopy>, private trace::TextReplacer {
  public:
    /// `begin_newest` gives the other writer; null: it cannot be made.
    LogCopy(trace::LogWriter& writer, Anonymizer& anonymizer,
            std::function<trace::LogWriter*()> begin_newest)
        : writer_(&writer),
          anonymizer_(anonymizer),
          begin_newest_(std::move(begin_newest)),
          to_(&writer) {}

    /// As the log did.
    bool stopped() const { return stopped_; }
    /// What the newest part begins with; null: no records are missing.
    const trace::CheckpointBlocks* checkpoint() const { return checkpoint_.get(); }

    void on_freed(const trace::Event& record) override { to_->on_freed(record); }

  private:
    friend trace::GenericSink<LogCopy>;

    template <typename Record>
    void take(const Record& record) {
        if (figures_ != nullptr && to_ != checkpoint_.get()) {
            figures_->on(record);  // part of the checkpoint, which is made again
        } else {
            copy(record);
        }
    }
    void take(const trace::Checkpoint& record) {
        if (checkpoint_ == nullptr) {
            figures_ = std::make_unique<trace::Aggregator>();
            figures_->on(record);
            return;
        }
        to_->on(record);
    }
    void take(const trace::AggregateState& record) {
        if (checkpoint_ != nullptr) {
            to_->on(record);
            return;
        }
        figures_->on(record);
        if (record.last) {
            copy_checkpoint();
        }
    }

    void copy_checkpoint() {
        // Its first region is read behind the checkpoint, wherever that is.
        checkpoint_ = std::make_unique<trace::CheckpointBlocks>(
            1, trace::LogPosition{newest_region, trace::format::region_header_size});
        to_ = checkpoint_.get();
        figures_->checkpoint(*this, this);
        checkpoint_->finish();
        figures_.reset();
        writer_ = begin_newest_();
        to_ = writer_ != nullptr ? static_cast<trace::RecordSink*>(writer_) : &nothing_;
    }

    std::string replace(const std::string& text) override { return anonymizer_.text(text); }

    template <typename Record>
    void copy(const Record& record) {
        to_->on(record);
    }
    void copy(const trace::ProcessInfo& record) {
        trace::ProcessInfo process = record;
        std::vector<std::string> paths = record.arguments;
        paths.push_back(record.executable);
        anonymizer_.learn(record.host, paths);
        process.executable = anonymizer_.path(record.executable);
        process.arguments = anonymizer_.arguments(record.arguments);
        process.host = anonymizer_.host(record.host);
        for (auto& [name, value] : process.ranks) {
            value = anonymizer_.text(value);
        }
        to_->on(process);
    }
    void copy(const trace::OptionValue& record) {
        to_->on(trace::OptionValue{record.name, anonymizer_.text(record.value)});
    }
    void copy(const trace::StringDef& record) {
        trace::StringDef string = record;
        string.text = anonymizer_.text(record.text);
        to_->on(string);
    }
    void copy(const trace::ModuleDef& record) {
        trace::ModuleDef module = record;
        module.path = anonymizer_.path(record.path);
        to_->on(module);
    }
    void copy(const trace::DeviceInfo& record) {
        trace::DeviceInfo device = record;
        device.uuid = anonymizer_.uuid(record.uuid);
        to_->on(device);
    }
    void copy(const trace::LogStopped& record) {
        if (writer_ != nullptr && writer_->stopped_because().empty()) {
            writer_->stop_as(
                {record.time_ns, anonymizer_.text(record.reason), record.events_dropped});
            stopped_ = true;
        }
    }
    void copy(const trace::End& record) {
        trace::End end = record;
        end.log_stopped_because = anonymizer_.text(record.log_stopped_because);
        to_->on(end);
    }

    struct Nothing final : trace::GenericSink<Nothing> {
        template <typename Record>
        void take(const Record& /*record*/) {}
    };

    trace::LogWriter* writer_;
    Anonymizer& anonymizer_;
    const std::function<trace::LogWriter*()> begin_newest_;
    trace::RecordSink* to_;
    Nothing nothing_;
    std::unique_ptr<trace::Aggregator> figures_;  ///< while a checkpoint is read
    std::unique_ptr<trace::CheckpointBlocks> checkpoint_;
    bool stopped_ = false;
};

/// Copies the blocks of a log without a ring. False: `problem` is set, or `to` has one.
bool put_blocks(const std::string& path, std::uint64_t size, OutputFile& to, std::string& problem) {
    std::ifstream from(path, std::ios::binary);
    from.seekg(static_cast<std::streamoff>(trace::format::file_header_size));
    std::vector<char> part(1 << 16);
    while (size != 0) {
        const auto most = std::min<std::uint64_t>(size, part.size());
        if (!from.read(part.data(), static_cast<std::streamsize>(most))) {
            problem = path + ": cannot be read again";
            return false;
        }
        if (!to.write(part.data(), most)) {
            return false;
        }
        size -= most;
    }
    return true;
}

/// A log with a ring of its beginning and its newest part, which are logs without one: their blocks
/// follow the headers of the file and of its only region. Returns an error, or empty.
std::string join(const std::string& beginning, const trace::CheckpointBlocks& checkpoint,
                 const std::string& newest, OutputFile& to) {
    constexpr std::uint64_t before = trace::format::file_header_size;
    std::error_code error;
    const std::uint64_t first = std::filesystem::file_size(beginning, error) - before;
    const std::uint64_t last = error ? 0 : std::filesystem::file_size(newest, error) - before;
    if (error) {
        return beginning + ": " + error.message();
    }
    const trace::LogRing ring{
        .regions = newest_region,
        .beginning = trace::format::ring_file_header_size + first,
        .region_size = std::max(trace::format::min_region_size,
                                trace::format::region_header_size + checkpoint.size() + last)};
    std::array<std::uint8_t, trace::format::ring_file_header_size> file_header{};
    std::array<std::uint8_t, trace::format::region_header_size> region_header{};
    ring.put_file_header(file_header.data());
    trace::put_region_header(region_header.data(), newest_region);
    const auto put = [&to](const auto& bytes) {
        return to.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    std::string problem;
    const auto& blocks = checkpoint.blocks();
    const bool written = put(file_header) && put_blocks(beginning, first, to, problem) &&
                         put(region_header) && std::all_of(blocks.begin(), blocks.end(), put) &&
                         put_blocks(newest, last, to, problem) && to.complete();
    return written || !problem.empty() ? problem : to.problem();
}

/// A log on its way to its place, which is removed if it does not get there.
struct Part {
    explicit Part(std::string path) : path(std::move(path)), cleanup(this->path) {}
    ~Part() { unlink(path.c_str()); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    const std::string path;
    const RemovedOnSignal cleanup;
    std::unique_ptr<trace::LogWriter> writer;
};

/// The writers of a copy and their files, which go with it.
class CopyFiles {
  public:
    CopyFiles(std::string output, model::Existing existing)
        : output_(std::move(output)), existing_(existing) {}

    trace::LogWriter* begin() {
        struct stat status {};
        if (existing_ == model::Existing::refuse && lstat(output_.c_str(), &status) == 0) {
            error_ = output_problem(output_, EEXIST);
            return nullptr;
        }
        if (stat(output_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
            error_ = output_ + ": is no regular file, and is left alone; name another file";
            return nullptr;
        }
        return create(beginning_, "");
    }
    trace::LogWriter* begin_newest() { return create(newest_, ".newest"); }

    const std::string& error() const { return error_; }

    /// Why a writer stopped by itself or lost something; empty: neither did.
    std::string finish(bool stopped) {
        for (const auto* each : {&beginning_, &newest_}) {
            if (!*each || (*each)->writer == nullptr) {
                continue;
            }
            trace::LogWriter& writer = *(*each)->writer;
            writer.close();
            const bool latest = each == &newest_ || !newest_;
            const std::string& why = writer.stopped_because();
            const std::string late = writer.incomplete_because();
            if ((!why.empty() && !(stopped && latest)) || !late.empty()) {
                return output_ + ": " + (late.empty() ? why : late) +
                       "; free some space, or name another file";
            }
        }
        return {};
    }

    /// Of both. Returns an error, or empty.
    std::string join_parts(const trace::CheckpointBlocks& checkpoint) {
        joined_.emplace(output_, existing_);
        return join(beginning_->path, checkpoint, newest_->path, *joined_);
    }

    /// Gives the copy its name. Returns an error, or empty.
    std::string place() {
        if (joined_) {
            joined_->finish();
            return joined_->problem();
        }
        const SignalBlocker blocker;
        const int error = model::rename_file(beginning_->path, link_target(output_), existing_);
        return error == 0 ? std::string() : output_problem(output_, error);
    }

  private:
    trace::LogWriter* create(std::optional<Part>& part, const char* name) {
        const SignalBlocker blocker;
        const std::string path = link_target(output_) + ".tmp." + std::to_string(getpid()) + name;
        trace::LogWriter::Result created = trace::LogWriter::create(path, 0);
        if (created.writer == nullptr) {
            error_ = created.error + "; name another file";
            return nullptr;
        }
        part.emplace(path);
        part->writer = std::move(created.writer);
        return part->writer.get();
    }

    const std::string output_;
    const model::Existing existing_;
    std::optional<Part> beginning_;
    std::optional<Part> newest_;
    std::optional<OutputFile> joined_;
    std::string error_;
};

std::vector<std::string> strings_of(const json& list) {
    std::vector<std::string> strings;
    for (const json& each : list) {
        strings.push_back(each.is_string() ? each.get<std::string>() : std::string());
    }
    return strings;
}

class JsonCopy {
  public:
    explicit JsonCopy(Anonymizer& anonymizer) : anonymizer_(anonymizer) {}

    void learn(const json& value) {
        if (value.is_object()) {
            if (value.contains("host") && value["host"].is_string()) {
                std::vector<std::string> paths;
                for (const char* name : {"arguments", "command"}) {
                    if (value.contains(name) && value[name].is_array()) {
                        paths = strings_of(value[name]);
                    }
                }
                for (const char* name : {"executable", "directory"}) {
                    if (value.contains(name) && value[name].is_string()) {
                        paths.push_back(value[name].get<std::string>());
                    }
                }
                anonymizer_.learn(value["host"].get<std::string>(), paths);
            }
            for (const auto& [name, member] : value.items()) {
                if (member.is_object() || name == "processes") {
                    learn(member);
                }
            }
        } else if (value.is_array()) {
            for (const json& each : value) {
                learn(each);
            }
        }
    }

    void replace(json& value, std::string_view name = {}) {
        if (value.is_object()) {
            for (auto& [member_name, member] : value.items()) {
                replace(member, member_name);
            }
        } else if (value.is_array() && (name == "arguments" || name == "command")) {
            value = anonymizer_.arguments(strings_of(value));
        } else if (value.is_array()) {
            for (json& each : value) {
                replace(each);
            }
        } else if (value.is_string()) {
            value = replaced(value.get<std::string>(), name);
        }
    }

  private:
    std::string replaced(const std::string& text, std::string_view name) {
        if (name == "host") {
            return anonymizer_.host(text);
        }
        if (name == "uuid") {
            return anonymizer_.uuid(text);
        }
        if (name == "executable" || name == "path") {
            return anonymizer_.path(text);
        }
        if (name == "command") {  // of an ancestor, in one text
            return anonymizer_.path(text.substr(0, text.find(' ')));
        }
        if (name == "report" || name == "log") {
            return anonymizer_.file_name(text);
        }
        return anonymizer_.text(text);
    }

    Anonymizer& anonymizer_;
};

}  // namespace

AnonymizedLog anonymize_log(const std::string& log, const std::string& output,
                            model::Existing existing, Anonymizer& anonymizer,
                            const std::function<std::string()>& before) {
    AnonymizedLog result;
    CopyFiles files(output, existing);
    trace::LogWriter* const writer = files.begin();
    if (writer == nullptr) {
        result.error = files.error();
        return result;
    }
    LogCopy copy(*writer, anonymizer, [&files] { return files.begin_newest(); });
    const trace::LogReadResult read = read_input_log(log, copy);
    result.records = read.records;
    const std::string lost = files.finish(copy.stopped());
    if (!read.is_log()) {
        result.error = read.message;
    } else if (!files.error().empty()) {
        result.error = files.error();
    } else if (!lost.empty()) {
        result.error = lost;
    } else if (copy.checkpoint() != nullptr) {
        result.error = files.join_parts(*copy.checkpoint());
    }
    if (result.error.empty()) {
        result.error = before();
    }
    if (result.error.empty()) {
        result.error = files.place();
    }
    if (result.error.empty() && read.status == trace::LogStatus::damaged) {
        result.warning = read.message;
    }
    return result;
}

std::string anonymize_json(std::string_view text, Anonymizer& anonymizer, std::string& error) {
    json root = json::parse(text, nullptr, false);
    if (!root.is_object() || !root.value("format", "").starts_with("memlab-")) {
        error = "neither a report nor the file of memlab-run";
        return "";
    }
    JsonCopy copy(anonymizer);
    copy.learn(root);
    copy.replace(root);
    return format_report(root);
}

}  // namespace memlab::report
