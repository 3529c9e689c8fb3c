// Adds to a derived report what only the parent of the process knows: how and when it ended.
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "report/reading/reader.hpp"

namespace memlab::report {

std::string add_process_end(const std::string& json, const std::string& signal, int exit_code,
                            const ProcessTimes& times) {
    try {
        auto root = nlohmann::ordered_json::parse(json);
        auto& process = root.at("process");
        if (process.at("ended") != "cut off") {
            return json;
        }
        if (signal.empty()) {
            process["exit_code"] = exit_code;
        } else {
            process["signal"] = signal;
        }
        const auto start = process.at("start_wall_ns").get<std::uint64_t>();
        const auto recorded = process.at("duration_ns").get<std::uint64_t>();
        const std::uint64_t end = times.end_wall_ns;
        if (start >= times.start_wall_ns && end > start && end - start > recorded) {
            process["recorded_ns"] = recorded;
            process["duration_ns"] = end - start;
        }
        return root.dump();
    } catch (const std::exception&) {
        return json;
    }
}

}  // namespace memlab::report
