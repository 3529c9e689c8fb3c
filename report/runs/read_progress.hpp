// Progress of reading the many files of a run.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "report/parallel.hpp"
#include "report/text/progress.hpp"

namespace memlab::report {

/// One line on the terminal for many files. Where few are read each has its own (ReadAhead).
class ReadProgress {
  public:
    explicit ReadProgress(const std::vector<std::string>& paths) {
        for (const std::string& path : paths) {
            std::error_code error;
            const std::uintmax_t size = std::filesystem::file_size(path, error);
            sizes_.push_back(error ? 0 : size);
            total_ += sizes_.back();
        }
        name_ = std::to_string(paths.size()) + " recordings";
    }

    std::vector<std::size_t> largest_first() const {
        std::vector<std::size_t> order(sizes_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [this](std::size_t a, std::size_t b) { return sizes_[a] > sizes_[b]; });
        return order;
    }

    /// File i was read. Thread-safe; only the thread that made this shows it.
    void add(std::size_t i) {
        const std::uint64_t done = done_ += sizes_[i];
        if (std::this_thread::get_id() != thread_ || !all_processors_busy()) {
            return;
        }
        const auto now = Progress::Clock::now();
        if (!line_) {
            line_.emplace(progress_terminal(), name_, total_, begin_, std::chrono::seconds{1});
        }
        line_->update(done, now);
    }

  private:
    std::vector<std::uint64_t> sizes_;
    std::string name_;
    std::uint64_t total_ = 0;
    std::atomic<std::uint64_t> done_{0};
    const std::thread::id thread_ = std::this_thread::get_id();
    const Progress::Clock::time_point begin_ = Progress::Clock::now();
    std::optional<Progress> line_;
};

}  // namespace memlab::report
