"""A stand-in for PyTorch's file of this name: hooks after each step, and the state of Adam."""

_post_hooks = []


def register_optimizer_step_post_hook(hook):
    _post_hooks.append(hook)


class Adam:
    def __init__(self, parameters, new_tensor):
        self.param_groups = [{"params": list(parameters)}]
        self.state = {}
        self.new_tensor = new_tensor

    def step(self):
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None and parameter not in self.state:
                self.state[parameter] = {"step": 1, "exp_avg": self.new_tensor(), "exp_avg_sq": self.new_tensor()}
        for hook in _post_hooks:
            hook(self, (), {})
