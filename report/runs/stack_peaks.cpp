#include "report/runs/stack_peaks.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "model/bounded_sum.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

/// A frame by build id and offset: equal in all processes that run the same binaries, and cheap.
std::string frame_key(const model::Report& report, const model::Frame& frame) {
    const model::Module& module = report.modules.at(frame.module);
    std::array<char, 16> address{};
    const char* const end =
        std::to_chars(address.data(), address.data() + address.size(), frame.address, 16).ptr;
    std::string key = base_name(module.path) + module.build_id + "+";
    key.append(static_cast<const char*>(address.data()), end);
    key += '|';
    return key;
}

}  // namespace

bool StackNumbers::has(std::uint32_t number, Level level) const {
    const Entry& entry = entries_[number]->second;
    return level == Level::driver ? entry.at_driver : entry.at_framework;
}

std::vector<StackPeak> StackNumbers::peaks_of(const model::Report& report) {
    const DevicesAt driver(report, Level::driver);
    const DevicesAt framework(report, Level::framework);
    std::vector<std::string> frames(report.frames.size());
    std::vector<StackPeak> peaks;
    std::vector<std::pair<std::string, const model::Site*>> found;
    for (const model::Site& site : report.sites) {
        if (!model::is_in_curves(site.kind) || site.peak_bytes == 0) {
            continue;
        }
        std::string key = (driver.has(site.device) ? "d" : "") +
                          std::string(framework.has(site.device) ? "f" : "") + site.kind;
        for (const std::size_t frame : report.stacks.at(site.stack).frames) {
            std::string& text = frames.at(frame);
            if (text.empty()) {
                text = frame_key(report, report.frames.at(frame));
            }
            key += text;
        }
        found.emplace_back(std::move(key), &site);
    }
    peaks.reserve(found.size());
    {
        const std::lock_guard lock(mutex_);
        for (auto& [key, site] : found) {
            const auto [entry, is_new] = numbers_.try_emplace(std::move(key));
            if (is_new) {
                entry->second = {static_cast<std::uint32_t>(entries_.size()), site->kind,
                                 driver.has(site->device), framework.has(site->device)};
                entries_.push_back(&*entry);
            }
            peaks.push_back(
                {entry->second.number, static_cast<std::uint32_t>(site->stack), site->peak_bytes});
        }
    }
    std::stable_sort(peaks.begin(), peaks.end(),
                     [](const auto& a, const auto& b) { return a.number < b.number; });
    std::size_t kept = 0;
    for (const StackPeak& peak : peaks) {
        if (kept != 0 && peaks[kept - 1].number == peak.number) {
            model::add_to(peaks[kept - 1].bytes, peak.bytes);
        } else {
            peaks[kept++] = peak;
        }
    }
    peaks.resize(kept);
    peaks.shrink_to_fit();
    return peaks;
}

}  // namespace memlab::report
