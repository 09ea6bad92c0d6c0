"""Terms of the page that need an explanation. Each is a button that shows it, and an entry of a list at the end."""

import re

from markupsafe import Markup, escape

TERMS = {
    "NLL": "Negative log-likelihood of the next notes, in nats per step. Lower is better: the notes surprise the model "
    "less.",
    "BPC": "Bits per character: how many bits the model needs for the next character. Lower is better.",
    "perplexity": "Between how many equally likely words the model hesitates, on average. Lower is better.",
    "accuracy": "The share of the test items that the model puts into the right class. Higher is better.",
    "MASE": "Mean absolute scaled error: the error of the forecast, divided by the error of repeating the value of a "
    "season before. Lower is better; below 1 is better than repeating.",
    "macro F1": "The mean over all classes of F1, which joins two shares: how much of what was given the class has it, "
    "and how much of what has the class was given it. Rare classes count as much as frequent ones.",
    "MAE": "Mean absolute error, in the units of the data.",
    "RMSE": "Root of the mean squared error, in the units of the data. Large errors count more.",
    "pinball loss": "Error of the quantiles that a forecast consists of, in the units of the data. Lower is better.",
    "80 % interval": "Where the model expects 80 % of the values. The closer the share inside is to 80 %, the better.",
    "95 % interval": "Where the model expects 95 % of the values. The closer the share inside is to 95 %, the better.",
    "seasonal naive": "The forecast that repeats the last season, such as the same hour of the day before.",
    "last value": "The forecast that repeats the last known value.",
    "95 % CI": "95 % confidence interval: a range that holds the true mean difference in 95 % of such comparisons.",
    "not significant": "Chance alone could explain the difference. Four seeds or more are needed to tell.",
    "significant": "Chance hardly explains the difference: the 95 % confidence interval of the mean difference, paired "
    "by seed, is on one side of zero for every other line.",
    "seed": "Where the random numbers of a run begin: initial weights, order of the data, dropout. Another seed gives "
    "another result.",
    "validation": "The part of the data that chooses the best epoch. The model does not learn from it.",
    "nade": "A joint output of music: the keys of a step are predicted one after another, each from those before it, "
    "by a small network. Such scores do not compare with those of independent keys.",
    "tied": "A joint output of music: one network over time that all keys share, and one over the keys of a step. Such "
    "scores do not compare with those of independent keys.",
    "bf16": "Trained with products in bfloat16, which is faster on many processors. Weights and scores are in float32.",
    "preset": "A named set of settings: paper (exactly as published), cpu (minutes), smoke (seconds), and others.",
}
FORMS = {"seeds": "seed", "significantly": "significant", "not significantly": "not significant"}
"""Other forms of a term."""
_LONGEST_FIRST = sorted([*TERMS, *FORMS], key=len, reverse=True)
_TERM = "|".join(rf"(?<!\w){re.escape(term)}(?!\w)" for term in _LONGEST_FIRST)
_ANY = re.compile(rf"({_TERM})([,;:.)]*)", re.IGNORECASE)


def key(term: str) -> str:
    """Return the id of a term's explanation on the page."""
    term = term.lower()
    return f"term-{re.sub('[^a-z0-9]+', '-', FORMS.get(term, term))}"


def explained(text: str) -> Markup:
    """Return a text, escaped unless it is `Markup`, with a button for each term where it occurs first.

    A sign after a term stays on its line. Markup must not have a term in a tag.
    """
    seen: set[str] = set()

    def explanation(match: re.Match[str]) -> str:
        term, sign = match.groups()
        if term in seen:
            return match[0]
        seen.add(term)
        button = f'<button type="button" class="term" aria-describedby="{key(term)}">{term}</button>'
        return f'<span class="kept">{button}{sign}</span>' if sign else button

    return Markup(_ANY.sub(explanation, str(escape(text))))
