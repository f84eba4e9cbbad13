"""Saved models and runs with other contents and valid checksums, as somebody hostile would make them."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli); of b"123456789" it is 0xe3069283."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def newest(directory: Path) -> Path:
    """The latest checkpoint in a directory."""
    return max(path for path in directory.iterdir() if path.name.isdigit() and path.is_dir())


def seal(checkpoint: Path, number: int | None = None) -> None:
    """Writes the manifest anew, so that it fits the files that are there."""
    number = int(checkpoint.name) if number is None else number
    parts = []
    for file in sorted(checkpoint.iterdir()):
        if file.name != "manifest.json":
            data = file.read_bytes()
            parts.append({"name": file.name, "length": len(data), "crc32c": crc32c(data)})
    write_manifest(checkpoint, {"number": number, "parts": parts})


def write_manifest(checkpoint: Path, manifest: dict[str, Any]) -> None:
    """A manifest with a valid checksum of itself."""
    compact = json.dumps(manifest, separators=(",", ":"), ensure_ascii=False).encode()
    envelope = {"format": 1, "crc32c": crc32c(compact), "manifest": manifest}
    (checkpoint / "manifest.json").write_text(json.dumps(envelope, ensure_ascii=False))


def forged(model: Path, to: Path, change: Callable[[Path], None]) -> Path:
    """A copy of a saved model whose latest checkpoint was changed, with checksums that fit."""
    shutil.copytree(model, to)
    checkpoint = newest(to)
    change(checkpoint)
    seal(checkpoint)
    return to


def in_json(*keys: Any, to: Any, file: str = "model.json") -> Callable[[Path], None]:
    """Replaces one value of a JSON file. A text that holds JSON itself is entered, too."""

    def change(checkpoint: Path) -> None:
        def replaced(value: Any, path: tuple[Any, ...]) -> Any:
            if not path:
                return to
            if isinstance(value, str):
                return json.dumps(replaced(json.loads(value), path))
            value[path[0]] = replaced(value[path[0]], path[1:])
            return value

        path = checkpoint / file
        path.write_text(json.dumps(replaced(json.loads(path.read_text()), keys)))

    return change


def tensors(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header and the data of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_tensors(path: Path, header: dict[str, Any] | bytes, data: bytes, length: int | None = None) -> None:
    """A safetensors file, whether or not it makes sense."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
