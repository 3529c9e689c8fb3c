// The errors of the readers of reports and event logs: one line each, with the position in the
// report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#include "report/reading/reader.hpp"

namespace memlab::report {

/// Thrown at the first error. Its text is "what is wrong, where; what to do".
struct Invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline constexpr const char* advice =
    "; the file is damaged or was not written by memlab: record again";

/// Where a value is in the report. Only formatted for an error message.
class ReportPath {
  public:
    /// The report itself.
    ReportPath() = default;
    /// A member of what is at `parent`, which must outlive this; or without a name an entry of it.
    ReportPath(const ReportPath& parent, const char* name, std::size_t position)
        : parent_(&parent), name_(name), position_(position) {}

    [[noreturn]] void fail(const std::string& what) const {
        throw Invalid(where() + " " + what + advice);
    }
    void require_index(std::uint64_t index, std::size_t size, const char* table) const {
        if (index >= size) {
            fail("is " + std::to_string(index) + ", but " + table + " has only " +
                 std::to_string(size) + " entries");
        }
    }
    std::string where() const {
        if (parent_ == nullptr) {
            return "the report";
        }
        const std::string before = parent_->parent_ == nullptr ? "" : parent_->where();
        if (name_ == nullptr) {
            return before + "[" + std::to_string(position_) + "]";
        }
        return before.empty() ? name_ : before + "." + name_;
    }

  private:
    const ReportPath* parent_ = nullptr;
    const char* name_ = nullptr;
    std::size_t position_ = 0;
};

inline constexpr const char* whole_number = "a whole number from 0 to 2^64-1";

/// `read()`, with what it throws as an error.
template <typename Read>
ReadResult without_exceptions(Read read) {
    ReadResult result;
    try {
        result.report = read();
    } catch (const Invalid& error) {
        result.error = error.what();
    } catch (const std::bad_alloc&) {
        result.error = too_large_to_read;
    } catch (const std::exception& error) {
        result.error = std::string(error.what()) + advice;
    }
    return result;
}

}  // namespace memlab::report
