// Writes a report's file, or another, that is there as a whole or not at all: what is written goes
// to a temporary file beside it, which is then renamed. Runs inside other people's programs at
// exit, so it uses neither stdio nor locales, throws nothing and raises no signal (RLIMIT_FSIZE).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/json_output.hpp"

namespace memlab::trace {
class Aggregator;
}

namespace memlab::model {

/// What to do when the file exists.
enum class Existing : std::uint8_t {
    refuse,   ///< fail with EEXIST, so that two processes never share a file
    replace,  ///< replace it atomically
};

/// Writes to a descriptor, from its current position on; it stays open. After a failure nothing
/// more is written. Thread-safety: none.
class DescriptorSink final : public ByteSink {
  public:
    explicit DescriptorSink(int descriptor);

    bool write(const char* data, std::size_t size) override;

    std::uint64_t bytes() const { return bytes_; }
    /// The errno of the failure; 0: none so far.
    int error() const { return error_; }

  private:
    int descriptor_;
    std::uint64_t space_ = ~std::uint64_t{0};
    std::uint64_t bytes_ = 0;
    int error_ = 0;
};

/// Renames `from` to `to`. 0, or the errno: EEXIST where `to` is to be kept.
int rename_file(const std::string& from, const std::string& to, Existing existing);

/// Thread-safety: none.
class NewFile final : public ByteSink {
  public:
    /// Creates the temporary file, skipping names left over by processes that died: see error().
    /// Permissions are `mode` minus the umask. May throw std::bad_alloc.
    explicit NewFile(std::string path, unsigned mode);
    /// Removes what was not placed.
    ~NewFile() override;

    bool write(const char* data, std::size_t size) override;

    /// Closes it: nothing more is written. 0, or the errno of the first failure, which network
    /// file systems tell only then.
    int complete();
    /// Closes it and gives it its name. 0, or the errno.
    int place(Existing existing);

    std::uint64_t bytes() const { return sink_.bytes(); }
    int error() const { return error_; }
    /// Empty: there is none (any longer).
    const std::string& temporary() const { return temporary_; }

  private:
    int create(unsigned mode);

    std::string path_;
    std::string temporary_;
    int error_ = 0;
    int descriptor_;
    DescriptorSink sink_;
};

struct WriteResult {
    std::string error;     ///< empty on success; else one sentence with the path and the reason
    int error_number = 0;  ///< errno of the failure: EEXIST when the name is taken
    std::uint64_t bytes = 0;

    bool ok() const { return error.empty(); }
};

/// Writes the report under a temporary name beside `path` and renames it: `path` either has the
/// whole report or is unchanged. A device, a pipe or a folder is never replaced. Permissions are
/// `mode` minus the umask. Never throws.
/// Thread-safety: the aggregator must not change meanwhile.
WriteResult write_report(const trace::Aggregator& aggregator, const std::string& path,
                         Existing existing = Existing::refuse, unsigned mode = 0666);

/// Writes the same text to an open descriptor, at its current position. It stays open.
WriteResult write_report(const trace::Aggregator& aggregator, int descriptor);

/// Writes `text`, a report, in the same way. Never throws.
WriteResult write_text(std::string_view text, const std::string& path, Existing existing);

}  // namespace memlab::model
