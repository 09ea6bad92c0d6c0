"""The weights of a cell as the matrices of a single step, for int8 scans and for the C engine.

A step multiplies few large matrices: those that read the same input are one, and so are those that are read together.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rru.scan.kernels import GRUOptions, MogrifierOptions, NoOptions, RRUOptions


class Product(NamedTuple):
    """A matrix and the bias of its product."""

    weight: Tensor  # (rows, columns)
    bias: Tensor  # (rows,)


class Matrices(NamedTuple):
    """The products of a step, in the order in which it computes them, and the weights that are no matrices."""

    products: list[Product]
    others: list[Tensor]


def of_rru(weights: list[Tensor], options: "RRUOptions") -> Matrices:
    """Return Eq. 1, each Eq. 2, and Eq. 4 and 6 as one; S and Z are no matrices."""
    weight_x, weight_h, bias_j, *rest = weights
    middle = 2 * (options.relu_layers - 1)
    weight_c, bias_c, weight_o, bias_o, *residual = rest[middle:]
    inner = [Product(torch.cat([weight_x, weight_h], 1), bias_j)]
    inner += [Product(*rest[k : k + 2]) for k in range(0, middle, 2)]
    outer = Product(torch.cat([weight_c, weight_o]), torch.cat([bias_c, bias_o]))
    return Matrices([*inner, outer], residual)


def of_lstm(weights: list[Tensor], options: "NoOptions") -> Matrices:
    """Return the product of input and state to all gates."""
    weight_x, weight_h, bias = weights
    return Matrices([Product(torch.cat([weight_x, weight_h], 1), bias)], [])


def of_gru(weights: list[Tensor], options: "GRUOptions") -> Matrices:
    """Return the products to the gates and to the candidate; with `reset_after` those of the input and of the state."""
    weight_x, weight_h, bias, *bias_h = weights
    gates = 2 * weight_h.shape[1]  # rows of the reset and the update gate; the candidate's follow
    if options.reset_after:
        of_state = torch.cat([bias.new_zeros(gates), *bias_h])
        return Matrices([Product(weight_x, bias), Product(weight_h, of_state)], [])
    both = torch.cat([weight_x, weight_h], 1)
    return Matrices([Product(both[:gates], bias[:gates]), Product(both[gates:], bias[gates:])], [])


def of_mogrifier(weights: list[Tensor], options: "MogrifierOptions") -> Matrices:
    """Return the product to all gates, and that of each round; two of a round of low rank."""
    weight_x, weight_h, bias, *rest = weights
    products = [Product(torch.cat([weight_x, weight_h], 1), bias)]
    each = 3 if options.rank else 2
    for place in range(0, len(rest), each):
        *narrow, weight, bias_m = rest[place : place + each]
        products += [Product(matrix, matrix.new_zeros(len(matrix))) for matrix in narrow]
        products.append(Product(weight, bias_m))
    return Matrices(products, [])
