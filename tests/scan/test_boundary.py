"""What reaches the native library fits it: it sees addresses, and neither shapes nor types nor who is tracing."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import rru


@pytest.mark.parametrize(
    ("cell", "name", "value"),
    [
        (rru.RRUCell(5, 7), "residual", "unscaled"),
        (rru.RRUCell(5, 7), "hidden_size", 8),
        (rru.RRUCell(5, 7), "normalize", False),
        (rru.LSTMCell(5, 7), "forget_bias", 2.0),
        (rru.LSTMCell(5, 7), "output_size", 8),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, rru.Cell) else str(value),
)
def test_an_option_cannot_be_changed_later(cell, name, value):
    before = getattr(cell, name)
    with pytest.raises(AttributeError, match=f"{name} of a .*Cell is fixed at {before!r}: create a new cell"):
        setattr(cell, name, value)
    assert getattr(cell, name) == before


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("weight", [torch.randn(2, 3), torch.randn(28, 7).double()], ids=["shape", "type"])
def test_weights_of_another_shape_or_type_are_refused(weight, grad):
    layer, x = rru.LSTM(5, 7), torch.randn(6, 3, 5)
    with torch.set_grad_enabled(grad), pytest.raises((ValueError, TypeError), match=r"weight_h must (have shape|be)"):
        torch.func.functional_call(layer, {"cells.0.weight_h": weight}, (x,))
    with torch.no_grad(), pytest.raises((ValueError, TypeError), match="weight_h must"):
        torch.func.functional_call(layer.cells[0], {"weight_h": weight}, (x[0],))


class TestAStepWithoutGradients:
    """The short way past torch's dispatcher is taken only where nobody is listening there."""

    cell, x, state = rru.RRUCell(5, 7), torch.randn(3, 5), torch.randn(3, 7)

    def test_on_another_default_device(self):
        with torch.no_grad(), torch.device("meta"):
            output, _ = self.cell(self.x, self.state)
        torch.testing.assert_close(output, self.cell(self.x, self.state)[0].detach())

    @pytest.mark.filterwarnings("ignore")  # torch calls tracing old, and our checks of shapes constant
    def test_is_traced(self):
        with torch.no_grad():
            traced = torch.jit.trace(self.cell, (self.x, self.state), check_trace=False)
            torch.testing.assert_close(traced(self.x, self.state), self.cell(self.x, self.state))

    def test_has_a_graph(self):
        with torch.no_grad():
            graph = make_fx(lambda x, state: self.cell(x, state)[0])(self.x, self.state)
            torch.testing.assert_close(graph(self.x, self.state), self.cell(self.x, self.state)[0])

    def test_on_fake_tensors(self):
        with FakeTensorMode(), torch.no_grad():
            output, _ = rru.RRUCell(5, 7)(torch.randn(3, 5))
        assert output.shape == (3, 7)

    def test_of_a_negated_view(self):
        with torch.no_grad():
            negated, _ = self.cell(torch._neg_view(self.x), self.state)
            plain, _ = self.cell(-self.x, self.state)
        torch.testing.assert_close(negated, plain)

    def test_whose_weight_is_no_parameter_has_its_gradient(self):
        cell = rru.RRUCell(5, 7).requires_grad_(False)
        weight = cell.weight_h.detach().clone().requires_grad_()
        del cell.weight_h
        cell.weight_h = weight
        cell(self.x, self.state)[0].sum().backward()
        assert weight.grad is not None
