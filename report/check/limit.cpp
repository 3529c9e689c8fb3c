#include "report/check/limit.hpp"

#include <algorithm>

#include "report/summary/filter.hpp"
#include "trace/record.hpp"

namespace memlab::report::check {

namespace {

const char* takes(Unit unit) {
    switch (unit) {
        case Unit::count:
            return "a whole number (100), or one above the baseline (+10, +5%)";
        case Unit::share:
            return "a share (20%, 0.2), or percentage points above the baseline (+5%)";
        default:
            return "a size (4GiB, 1048576), or one above the baseline (+64MiB, +5%)";
    }
}

/// Divisor from percent to a share.
constexpr Figure::Wide percent = 100;

std::optional<Bound> read(std::string_view text, Unit unit) {
    Bound bound;
    const std::size_t first = text.find_first_not_of(" \t");
    if (first != std::string_view::npos && text[first] == '+') {
        bound.kind = Bound::Kind::above_baseline;
        text.remove_prefix(first + 1);
    }
    const auto split = split_number(text);
    if (!split) {
        return std::nullopt;
    }
    bound.amount = split->number;
    if (split->unit == "%") {
        if (unit != Unit::share && !bound.relative()) {
            return std::nullopt;
        }
        if (split->number.in_millionths() % percent != 0) {
            return std::nullopt;  // finer than a millionth
        }
        bound.amount = Figure::millionths(split->number.in_millionths() / percent);
        if (unit != Unit::share) {
            bound.kind = Bound::Kind::share_above_baseline;
        }
    } else if (unit == Unit::share || unit == Unit::count) {
        if (!split->unit.empty() || (unit == Unit::count && !split->number.is_whole())) {
            return std::nullopt;
        }
    } else {
        const auto bytes = in_bytes(split->number, split->unit);
        if (!bytes) {
            return std::nullopt;
        }
        bound.amount = *bytes;
    }
    const bool too_large = unit == Unit::share && bound.amount > Figure::whole(1);
    return too_large ? std::nullopt : std::optional<Bound>(bound);
}

/// Nobody allocates parts of a byte: what was meant has a unit that was left out.
bool is_part_of_a_byte(const Bound& bound, std::string_view text) {
    const bool scaled = text.find_first_of("kKmMgGtT") != std::string_view::npos;
    return bound.kind != Bound::Kind::share_above_baseline && !bound.amount.is_whole() &&
           (!scaled || bound.amount < Figure::whole(1));
}

}  // namespace

const std::vector<MetricInfo>& metrics() {
    static const std::vector<MetricInfo> table = {
        {Metric::peak_allocated, "peak_allocated", Unit::bytes, true, true, true, true,
         "Peak of allocated memory"},
        {Metric::peak_reserved, "peak_reserved", Unit::bytes, false, false, false, false,
         "Most that was taken from the driver (depends on\nthe order of allocations)"},
        {Metric::peak_managed, "peak_managed", Unit::bytes, false, false, false, false,
         "Most managed memory that the program held at once"},
        {Metric::peak_pinned, "peak_pinned", Unit::bytes, false, false, false, false,
         "Most pinned host memory that the program held at\nonce"},
        {Metric::leaks, "leaks", Unit::bytes, true, true, true, true,
         "Memory held at the end, of every kind"},
        {Metric::leak_count, "leak_count", Unit::count, true, false, true, true,
         "Number of allocations held at the end"},
        {Metric::allocations, "allocations", Unit::count, true, true, true, false,
         "Number of allocations of device memory"},
        {Metric::growth, "growth", Unit::bytes_per_step, true, true, false, false,
         "Growth per step; 0: steady (needs steps: marked, or found in an event log)"},
        {Metric::fragmentation, "fragmentation", Unit::share, false, false, false, false,
         "1 - active peak / reserved peak of the pool"},
        {Metric::bypass, "bypass", Unit::bytes, true, false, false, false,
         "Memory that bypassed memlab (needs MEMLAB_AUDIT=on)"},
        {Metric::ooms, "ooms", Unit::count, false, false, false, false,
         "Allocations that failed for lack of memory"},
        {Metric::contexts, "contexts", Unit::count, false, false, false, false,
         "Contexts on a GPU at its sampled peak (needs\nMEMLAB_LEDGER)"},
        {Metric::modules, "modules", Unit::bytes, false, false, false, false,
         "Loaded code on a GPU at its sampled peak"},
        {Metric::unexplained, "unexplained", Unit::share, false, false, false, false,
         "Share of a GPU's memory in use at its sampled peak\nthat the ledger does not explain, "
         "other processes included"},
        {Metric::rank_imbalance, "rank_imbalance", Unit::share, false, false, false, false,
         "How far the allocated peak of the largest rank is\nabove the mean (memlab-report merge)"},
    };
    return table;
}

const MetricInfo& info(Metric metric) {
    return metrics().at(static_cast<std::size_t>(metric));
}

const MetricInfo* find_metric(std::string_view name) {
    const auto& all = metrics();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
    return found == all.end() ? nullptr : &*found;
}

bool measures(const MetricInfo& metric, Subject::Kind kind) {
    return kind == Subject::Kind::all || (kind == Subject::Kind::site && metric.of_sites) ||
           (kind == Subject::Kind::scope && metric.of_scopes) ||
           (kind == Subject::Kind::kind && metric.of_kinds) ||
           (kind == Subject::Kind::nn_module && metric.of_nn_modules);
}

std::string_view keyword(Subject::Kind kind) {
    static constexpr const char* names[] = {"", "site", "scope", "kind", "nn_module"};
    return trace::name_in<Subject::Kind::nn_module>(names, kind, "");
}

Subject take_kind(std::string_view* text) {
    const std::size_t equals = text->find('=');
    if (equals == std::string_view::npos) {
        return {};
    }
    Subject subject{Subject::Kind::kind, std::string(text->substr(0, equals))};
    text->remove_prefix(equals + 1);
    return subject;
}

std::optional<Bound> parse_bound(std::string_view text, Unit unit, std::string* problem) {
    std::optional<Bound> bound = read(text, unit);
    if (!bound) {
        *problem = std::string("takes ") + takes(unit) + ", not \"" + std::string(text) + "\"";
    } else if ((unit == Unit::bytes || unit == Unit::bytes_per_step) &&
               is_part_of_a_byte(*bound, text)) {
        *problem = "takes whole bytes, or a size with its unit (0.2GiB), not \"" +
                   std::string(text) + "\"";
        return std::nullopt;
    }
    return bound;
}

std::string subject_problem(const Subject& subject) {
    if (subject.kind == Subject::Kind::kind) {
        std::string kinds;
        for (int i = 0; i < trace::memory_kind_count; ++i) {
            const char* const name = trace::name_of(static_cast<trace::MemoryKind>(i));
            if (name == subject.text) {
                return {};
            }
            kinds.append(kinds.empty() ? "" : ", ").append(name);
        }
        return "\"" + subject.text + "\" is no kind of memory; there are " + kinds;
    }
    report::Filter filter;
    if (subject.kind == Subject::Kind::nn_module) {
        return filter.add("nn_module=" + subject.text);
    }
    const std::string problem =
        subject.kind == Subject::Kind::site ? filter.add(subject.text) : std::string();
    return filter.by_nn_module() ? "is for call stacks; limit an nn.Module as one (docs/ci.md)"
                                 : problem;
}

Figure allowed(const Bound& bound, Unit unit, Figure baseline) {
    switch (bound.kind) {
        case Bound::Kind::absolute:
            return bound.amount;
        case Bound::Kind::above_baseline:
            // A share is at most 1.
            return unit == Unit::share ? std::min(baseline + bound.amount, Figure::whole(1))
                                       : baseline + bound.amount;
        case Bound::Kind::share_above_baseline:
            break;
    }
    // The factors reach 2^84 and 2^77: multiplied in two steps to stay in 128 bits, rounded down.
    const Figure::Wide whole = bound.amount.in_millionths() / Figure::one;
    const Figure::Wide rest = bound.amount.in_millionths() % Figure::one;
    const Figure::Wide base = std::max<Figure::Wide>(baseline.in_millionths(), 0);
    constexpr Figure::Wide max_product = static_cast<Figure::Wide>(1) << 100;
    const Figure::Wide times =
        whole > max_product / std::max<Figure::Wide>(base, 1) ? max_product : base * whole;
    return baseline + Figure::millionths(times + base * rest / Figure::one);
}

std::string bound_text(const Bound& bound, Unit unit) {
    const std::string sign = bound.relative() ? "+" : "";
    return sign + figure_text(bound.amount,
                              bound.kind == Bound::Kind::share_above_baseline ? Unit::share : unit);
}

std::string name_of(Metric metric, const Subject& subject) {
    std::string name(info(metric).name);
    if (subject.kind == Subject::Kind::kind) {
        return name + " of " + subject.text + " memory";
    }
    if (subject.kind != Subject::Kind::all) {
        name.append(" of ").append(keyword(subject.kind)).append(" ").append(subject.text);
    }
    return name;
}

}  // namespace memlab::report::check
