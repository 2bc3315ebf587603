"""The messages of proto/kvpool.proto, as classes (types: wire.pyi, made when this is installed).

Made from descriptors instead of generated code: that works with whatever version of protobuf an
engine already has, and in a pool of its own it cannot collide with another library's messages.
"""

from importlib.resources import files

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_descriptors = files(__package__).joinpath("wire.binpb")
if not _descriptors.is_file():
    raise ImportError(
        f"{_descriptors} is missing, so this is the source tree: pip install ./client-lib/python, "
        "and start Python where this folder is not on its path"
    )
_set = descriptor_pb2.FileDescriptorSet.FromString(_descriptors.read_bytes())
_pool = descriptor_pool.DescriptorPool()
for _file in _set.file:
    for _name, _descriptor in _pool.AddSerializedFile(
        _file.SerializeToString()
    ).message_types_by_name.items():
        globals()[_name] = message_factory.GetMessageClass(_descriptor)
