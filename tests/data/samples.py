"""Build small files in the formats of the real data sets."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import scipy.io

WORDS = {
    "train": " the cat sat on the mat \n the <unk> ran N miles \n",
    "valid": " the dog sat \n",
    "test": " a cat ran \n",
}


def pieces(seed=0, counts=(3, 2, 1)):
    """Random piano rolls, a list per split."""
    generator = np.random.default_rng(seed)
    return [
        [(generator.random((int(generator.integers(1, 9)), 88)) < 0.05).astype(np.uint8) for _ in range(count)]
        for count in counts
    ]


def as_notes(rolls):
    return {
        split: [[tuple(int(key) + 21 for key in np.flatnonzero(step)) for step in piece] for piece in some]
        for split, some in zip(("train", "valid", "test"), rolls, strict=True)
    }


def mat_bytes(rolls, dtype=np.uint8, compressed=True):
    variables = {}
    for name, some in zip(("traindata", "validdata", "testdata"), rolls, strict=True):
        cells = np.empty((1, len(some)), dtype=object)
        cells[0, :] = [piece.astype(dtype) for piece in some]
        variables[name] = cells
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=compressed)
    return file.getvalue()


def pickle_bytes(rolls, protocol=2):
    return pickle.dumps(as_notes(rolls), protocol)


def idx_bytes(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def zip_bytes(name, data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def tar_bytes(members, packed=True, form=tarfile.GNU_FORMAT):
    """A tar archive of (name, content) pairs; a name may also be a TarInfo."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz" if packed else "w", format=form) as archive:
        for name, data in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            if member.isreg():
                member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def reviews(train=10, test=4):
    """Yield names and contents of a small aclImdb."""
    for split, count in (("train", train), ("test", test)):
        for label, word in (("neg", "bad"), ("pos", "good")):
            for number in range(count):
                text = f"A {word} film.<br /><br />It's film number {number}, isn't it?"
                yield f"aclImdb/{split}/{label}/{number}_{3 if label == 'neg' else 9}.txt", text.encode()


def digits(count, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    return images, generator.integers(0, 10, count, dtype=np.uint8)


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def packed(data):
    return gzip.compress(data, 1)
