"""The messages of proto/kvpool.proto, as classes (types: wire.pyi, made when this is installed).

Made from descriptors instead of generated code: that works with whatever version of protobuf an
engine already has, and in a pool of its own it cannot collide with another library's messages.
"""

from importlib.resources import files

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_set = descriptor_pb2.FileDescriptorSet.FromString(
    files(__package__).joinpath("wire.binpb").read_bytes()
)
_pool = descriptor_pool.DescriptorPool()
for _file in _set.file:
    for _name, _descriptor in _pool.AddSerializedFile(
        _file.SerializeToString()
    ).message_types_by_name.items():
        globals()[_name] = message_factory.GetMessageClass(_descriptor)
