// libFuzzer: budget files and baselines, on any bytes at all. A refusal is one line, in TOML and in
// JSON; what is taken is written and read back the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "report/check/baseline.hpp"
#include "report/check/budget.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace memlab::report::check;
    using memlab::fuzz::require;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const BudgetResult budget = parse_budget(text, "fuzz.toml");
    require(budget.budget.has_value() == budget.error.empty());
    require(budget.error.find('\n') == std::string::npos);
    if (budget.budget) {
        for (const Limit& limit : budget.budget->limits) {
            const Unit unit = info(limit.metric).unit;
            // Nothing that is allowed over a baseline lies below it.
            require(!limit.bound.relative() ||
                    allowed(limit.bound, unit, Figure::whole(size)) >=
                        (unit == Unit::share ? Figure() : Figure::whole(size)));
            require(!bound_text(limit.bound, unit).empty());
        }
    }
    const BaselineResult baseline = parse_baseline(std::string(text));
    require(!(baseline.baseline && !baseline.error.empty()));
    if (baseline.baseline) {
        const std::string written = baseline_text(baseline.baseline->figures());
        const BaselineResult again = parse_baseline(written);
        require(again.baseline.has_value());
        require(baseline_text(again.baseline->figures()) == written);
    }
    return 0;
}
