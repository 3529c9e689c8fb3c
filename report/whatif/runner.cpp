#include "report/whatif/runner.hpp"

namespace memlab::report::whatif {

namespace {

/// False when the model is out of memory.
bool take_step(const Program& program, const Step& step, Model& model, Outcome& outcome) {
    switch (step.kind) {
        case StepKind::allocate:
            return model.allocate(step.subject, program.allocations[step.subject]);
        case StepKind::attempt:
            if (model.allocate(step.subject, program.allocations[step.subject])) {
                ++outcome.attempts_served;
                model.free(step.subject);
                model.complete(step.subject);
            }
            break;
        case StepKind::free:
            model.free(step.subject);
            break;
        case StepKind::complete:
            model.complete(step.subject);
            break;
        case StepKind::empty_cache:
            model.empty_cache();
            break;
        case StepKind::mark:
            model.synchronize();
            break;
        case StepKind::context_lost:
            model.context_lost(step.subject);
            break;
    }
    return true;
}

}  // namespace

Outcome run(const Program& program, Model& model, const StepObserver& observe) {
    Outcome outcome;
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
        const Step step = program.steps[i];
        if (!take_step(program, step, model, outcome)) {
            outcome.failure =
                Failure{step.subject, model.meter().reserved(), model.meter().allocated()};
            break;
        }
        if (observe) {
            observe(i, model);
        }
    }
    const Meter& meter = model.meter();
    outcome.reserved_peak = meter.reserved_peak();
    outcome.allocated_peak = meter.allocated_peak();
    outcome.active_peak = meter.active_peak();
    outcome.requested_at_peak = meter.requested_at_peak();
    outcome.at_growth = model.at_growth();
    outcome.calls = meter.calls();
    return outcome;
}

Served serves(const Program& program, Model& model, std::uint32_t allocation) {
    Outcome outcome;
    for (const Step step : program.steps) {
        const bool asks = step.kind == StepKind::allocate || step.kind == StepKind::attempt;
        if (asks && step.subject == allocation) {
            return model.allocate(allocation, program.allocations[allocation]) ? Served::yes
                                                                               : Served::no;
        }
        if (!take_step(program, step, model, outcome)) {
            return Served::not_reached;
        }
    }
    return Served::not_reached;
}

}  // namespace memlab::report::whatif
