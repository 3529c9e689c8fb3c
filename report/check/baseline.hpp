// Figures of an earlier run, to hold later ones against: kept by GPU and driver, since both move
// them. A file holds any number of such entries; a folder holds a file for each, so that two
// machines never edit the same one. What is written depends on the figures alone: the same run
// gives the same bytes, and a version control system shows what changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/check/limit.hpp"

namespace memlab::check {

/// What a figure holds for.
struct BaselineKey {
    std::string gpu;
    std::uint64_t driver_version = 0;  ///< 13000 is 13.0

    // NOLINTNEXTLINE(modernize-use-nullptr): the 0 it complains of is the compiler's own.
    auto operator<=>(const BaselineKey&) const = default;
};

struct BaselineFigure {
    BaselineKey key;
    std::string process;                  ///< "rank 0", "train.py"
    std::optional<std::uint64_t> device;  ///< as in Measurement
    Metric metric = Metric::peak_allocated;
    Subject subject;
    Figure figure;
};

class Baseline {
  public:
    Baseline() = default;
    explicit Baseline(std::vector<BaselineFigure> figures) : figures_(std::move(figures)) {}

    const std::vector<BaselineFigure>& figures() const { return figures_; }

    bool knows(const BaselineKey& key) const;

    /// `process` empty: whichever there is. Nothing when it was not recorded.
    std::optional<Figure> find(const BaselineKey& key, const std::string& process,
                               const std::optional<std::uint64_t>& device, Metric metric,
                               const Subject& subject) const;

    /// The names that figures of `key` are of, each once.
    std::vector<std::string> processes(const BaselineKey& key) const;

    /// Puts `newer` in the place of all that is known of its keys.
    void replace(const std::vector<BaselineFigure>& newer);

  private:
    std::vector<BaselineFigure> figures_;
};

struct BaselineResult {
    std::optional<Baseline> baseline;  ///< nothing: not a baseline, or `error`
    std::string error;                 ///< "what; what to do"
    bool exists = false;
};

/// Reads a baseline file, or all of a folder. Neither is an error: a path where nothing is yet, a
/// file or folder that holds something else (reports may).
BaselineResult read_baseline(const std::string& path);

/// Parses the text of a baseline file. Never throws but std::bad_alloc.
BaselineResult parse_baseline(const std::string& text);

/// The text of a baseline file.
std::string baseline_text(const std::vector<BaselineFigure>& figures);

/// Puts `figures` into the file or folder `path`, beside what it has of other keys. A folder is
/// made where the path ends in "/". Each file is replaced as a whole or stays as it was. An error,
/// or empty.
std::string update_baseline(const std::string& path, const std::vector<BaselineFigure>& figures);

/// "NVIDIA H100 80GB HBM3 with a CUDA 13.0 driver".
std::string key_text(const BaselineKey& key);

}  // namespace memlab::check
