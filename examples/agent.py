"""A recurrent agent learns a task that needs memory, with episodes of different lengths in one batch.

The task: at the start of an episode the agent sees a signal, one of `--signals`. Then it sees noise, for 4 to 12 steps.
When the question comes, it must answer with the signal's number. A right answer gives a return of 1; guessing gives
1 / signals. Episodes end at different times, and the environments start the next one at once.

So a batch of experience (steps, environments) has episodes that start in the middle. `nn.LSTM` cannot forget there, and
the usual way out is a loop over the steps that clears the state of those that are done. An rru layer takes a mask of
these places, `layer(x, state, resets=starts)`, and runs all steps in one call, forward and backward.

There are three agents: an RRU and an LSTM with `resets`, and `nn.LSTM` with the loop over steps, which starts from the
weights of the LSTM and draws the same random numbers: it learns the same, but takes longer. They learn by advantage
actor-critic (A2C). Acting in the environments takes single steps for all of them, with the same code.
"""

import argparse
import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

import rru

DISCOUNT, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.9, 0.5, 0.002
SHORTEST, LONGEST = 4, 12  # steps of noise between a signal and its question
LOOP = "nn.LSTM in a loop"
AGENTS = ("RRU", "LSTM", LOOP)


class Recall:
    """Many environments at once. An observation (E, signals + 2) has the signal, the question and a number of noise."""

    def __init__(self, environments: int, signals: int, generator: torch.Generator) -> None:
        self.signals, self.generator = signals, generator
        self.signal = torch.zeros(environments, dtype=torch.long)
        self.left = torch.zeros(environments, dtype=torch.long)  # steps until the question
        self.starts = torch.ones(environments, dtype=torch.bool)  # whether an episode starts with this observation

    def observe(self) -> Tensor:
        """Start episodes where one has ended, and return what is seen: (E, signals + 2)."""
        count = int(self.starts.sum())
        self.signal[self.starts] = torch.randint(self.signals, (count,), generator=self.generator)
        self.left[self.starts] = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=self.generator)
        seen = torch.zeros(len(self.left), self.signals + 2)
        seen[self.starts, self.signal[self.starts]] = 1
        seen[:, -2] = self.left == 0
        seen[:, -1] = torch.rand(len(self.left), generator=self.generator)
        return seen

    def act(self, actions: Tensor) -> Tensor:
        """Take the actions (E,), go on, and return the rewards (E,)."""
        asked = self.left == 0
        rewards = (asked & (actions == self.signal)).float()
        self.starts, self.left = asked, self.left - 1
        return rewards


class Experience(NamedTuple):
    """Some steps of all environments, and the state of the agent before them."""

    seen: Tensor  # (T, E, m)
    starts: Tensor  # (T, E): whether an episode starts with this step
    actions: Tensor  # (T, E)
    rewards: Tensor  # (T, E)
    state: rru.nn.checks.PublicState


class Agent(nn.Module):
    """Recurrent layer, then one head for the policy and one for the value of a state."""

    def __init__(self, layer_class: type[rru.Layer], inputs: int, hidden_size: int, actions: int) -> None:
        super().__init__()
        self.layer: rru.Layer | nn.LSTM = layer_class(inputs, hidden_size)
        self.heads = nn.Linear(hidden_size, actions + 1)

    def initial_state(self, environments: int) -> rru.nn.checks.PublicState:
        """Return the state at the start of an episode: (1, E, n), and a pair of these for the LSTMs."""
        if isinstance(self.layer, rru.Layer):
            return self.layer.initial_state(environments)
        return torch.zeros(1, environments, self.layer.hidden_size), torch.zeros(
            1, environments, self.layer.hidden_size
        )

    def step(
        self, seen: Tensor, state: rru.nn.checks.PublicState, starts: Tensor
    ) -> tuple[Tensor, rru.nn.checks.PublicState]:
        """Run one step on (E, m), after clearing the state of episodes that start. Return the heads and the state."""
        initial = self.initial_state(len(seen))
        if isinstance(state, Tensor):
            state = torch.where(starts.view(1, -1, 1), initial, state)
        else:
            state = tuple(torch.where(starts.view(1, -1, 1), *pair) for pair in zip(initial, state, strict=True))
        outputs, state = self.layer(seen.unsqueeze(0), state)
        return self.heads(outputs[0]), state

    def forward(self, given: Experience) -> tuple[Tensor, Tensor]:
        """Return the logits of all actions (T, E, actions) and the values (T, E), for all steps."""
        if isinstance(self.layer, rru.Layer):
            outputs, _ = self.layer(given.seen, given.state, resets=given.starts)  # one call for all steps
            heads = self.heads(outputs)
        else:
            state, steps = given.state, []
            for seen, starts in zip(given.seen, given.starts, strict=True):
                output, state = self.step(seen, state, starts)
                steps.append(output)
            heads = torch.stack(steps)
        return heads[..., :-1], heads[..., -1]


class Trainer:
    """An agent in its environments."""

    def __init__(self, kind: str, options: argparse.Namespace) -> None:

        def build(hidden_size: int) -> Agent:
            return Agent(rru.RRU if kind == "RRU" else rru.LSTM, options.signals + 2, hidden_size, options.signals)

        hidden_size = rru.hidden_size_for(options.parameters, build)
        torch.manual_seed(options.seed)
        self.agent = build(hidden_size)
        if kind == LOOP:
            self.agent.layer = self.agent.layer.to_torch()
            self.agent.layer.bias_hh_l0.requires_grad_(False)  # torch has two biases, which are summed
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=options.learning_rate)
        self.steps = options.steps
        self.random = torch.Generator().manual_seed(options.seed + 1)
        self.world = Recall(options.environments, options.signals, self.random)
        self.state = self.agent.initial_state(options.environments)
        self.learning_seconds = 0.0
        self.returns: list[float] = []  # of each batch of experience: the mean over the episodes that ended

    @torch.no_grad()
    def collect(self) -> Experience:
        """Act for some steps, and return what happened."""
        before, rows = self.state, []
        for _ in range(self.steps):
            starts = self.world.starts
            seen = self.world.observe()
            heads, self.state = self.agent.step(seen, self.state, starts)
            actions = torch.multinomial(heads[:, :-1].softmax(1), 1, generator=self.random).squeeze(1)
            rows.append((seen, starts, actions, self.world.act(actions)))
        seen, starts, actions, rewards = (torch.stack(column) for column in zip(*rows, strict=True))
        ends = torch.cat([starts[1:], self.world.starts.unsqueeze(0)])
        self.returns.append((rewards.sum() / ends.sum().clamp_min(1)).item())
        return Experience(seen, starts, actions, rewards, before)

    def learn(self, given: Experience) -> None:
        """Take one step of A2C. The reward comes with an episode's last step: it is counted back to the first."""
        start = time.process_time()
        logits, values = self.agent(given)
        targets, following = torch.empty_like(values), values[-1].detach()  # stands for the value of the step after
        for t in reversed(range(len(values))):
            ends = self.world.starts if t == len(values) - 1 else given.starts[t + 1]
            following = given.rewards[t] + DISCOUNT * following * ~ends
            targets[t] = following
        policy = torch.distributions.Categorical(logits=logits)
        gains = targets - values
        loss = -(policy.log_prob(given.actions) * gains.detach()).mean() + VALUE_WEIGHT * gains.square().mean()
        self.optimizer.zero_grad()
        (loss - ENTROPY_WEIGHT * policy.entropy().mean()).backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 1.0)
        self.optimizer.step()
        self.learning_seconds += time.process_time() - start


def main() -> None:
    """Train all agents; print their returns, and the processor time they took to learn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=4, help="different signals to remember")
    parser.add_argument("--environments", type=int, default=32, help="environments that run at once")
    parser.add_argument("--steps", type=int, default=64, help="steps of experience in each batch")
    parser.add_argument("--updates", type=int, default=150, help="batches to learn from")
    parser.add_argument("--parameters", type=int, default=20_000, help="maximum number of parameters of each agent")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # faster for such small networks
    trainers = {kind: Trainer(kind, options) for kind in AGENTS}
    sizes = ", ".join(f"{kind} {rru.count_parameters(trainer.agent):,}" for kind, trainer in trainers.items())
    print(
        f"Recall one of {options.signals} signals. Parameters: {sizes}. Guessing: return {1 / options.signals:.2f}.\n"
    )
    print("update  " + "".join(f"{kind:<22}" for kind in AGENTS))
    for update in range(1, options.updates + 1):
        for trainer in trainers.values():
            trainer.learn(trainer.collect())
        if update % 25 == 0 or update == options.updates:
            shown = (f"return {mean_of_last(trainer.returns):.2f}" for trainer in trainers.values())
            print(f"{update:6d}  " + "".join(f"{text:<22}" for text in shown), flush=True)
    print()
    slowest = trainers[LOOP].learning_seconds
    for kind, trainer in trainers.items():
        seconds = 1e3 * trainer.learning_seconds / options.updates
        print(
            f"{kind:<18} return {mean_of_last(trainer.returns):.2f}; learns from a batch in {seconds:.1f} ms of "
            f"processor time, {slowest / trainer.learning_seconds:.1f} times as fast as the loop."
        )


def mean_of_last(values: list[float], count: int = 20) -> float:
    """Return the mean of the last few values."""
    return sum(values[-count:]) / len(values[-count:])


if __name__ == "__main__":
    main()
