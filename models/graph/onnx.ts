// Reads and writes the part of the ONNX file format that Pocket's graphs use, with protobufjs. Field numbers are those of
// the public onnx.proto; fields that are never written are not declared.
import protobuf from "protobufjs/light.js";

export type ElementType = "float32" | "uint8" | "int32" | "int64";

/** Codes of TensorProto.DataType. */
const elementTypes: Readonly<Record<ElementType, number>> = { float32: 1, uint8: 2, int32: 6, int64: 7 };

export interface Node {
  readonly name: string;
  readonly operator: string;
  /** Operator set: "" for standard ONNX, "com.microsoft", "pocket". */
  readonly domain: string;
  /** An empty string omits an optional input. */
  readonly inputs: readonly string[];
  /** An empty string omits an optional output. */
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Attribute>>;
}

export type Attribute =
  | { readonly int: number }
  | { readonly float: number }
  | { readonly floats: readonly number[] };

/** A tensor in an external file, little-endian, row-major. */
export interface ExternalTensor {
  readonly name: string;
  readonly type: ElementType;
  readonly dims: readonly number[];
  readonly offset: number;
  readonly bytes: number;
}

/** Dimensions that are known only at run time have a name. */
export interface Port {
  readonly name: string;
  readonly type: ElementType;
  readonly dims: readonly (number | string)[];
}

export interface OnnxGraph {
  readonly name: string;
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly nodes: readonly Node[];
  readonly tensors: readonly ExternalTensor[];
  /** Name of the external file, in the folder of the graph. */
  readonly externalFile: string;
}

const irVersion = 10;
/** Operator sets and their versions. `pocket` is registered by the addon, the others are ONNX Runtime's. */
const operatorSets: readonly (readonly [string, number])[] = [
  ["", 21],
  ["com.microsoft", 1],
  ["pocket", 1],
];

/** The bytes of a ModelProto. */
export function encodeModel(graph: OnnxGraph): Uint8Array {
  const model = {
    irVersion,
    producerName: "pocket",
    opsetImport: operatorSets.map(([domain, version]) => ({ domain, version })),
    graph: {
      name: graph.name,
      node: graph.nodes.map(nodeProto),
      initializer: graph.tensors.map((tensor) => tensorProto(tensor, graph.externalFile)),
      input: graph.inputs.map(valueInfoProto),
      output: graph.outputs.map(valueInfoProto),
    },
  };
  return modelProto.encode(modelProto.fromObject(model)).finish();
}

/** The inverse of encodeModel. Other ONNX files may have fields that are not declared here. */
export function decodeModel(bytes: Uint8Array): OnnxGraph {
  const model = modelProto.toObject(modelProto.decode(bytes), {
    longs: Number,
    defaults: true,
  }) as ModelFields;
  const { name, node, initializer, input, output } = model.graph;
  const external = initializer.map((tensor) =>
    Object.fromEntries(tensor.externalData.map(({ key, value }) => [key, value])),
  );
  return {
    name,
    externalFile: external[0]?.location ?? "",
    inputs: input.map(portOf),
    outputs: output.map(portOf),
    nodes: node.map((fields) => ({
      name: fields.name,
      operator: fields.opType,
      domain: fields.domain,
      inputs: fields.input,
      outputs: fields.output,
      attributes: Object.fromEntries(
        fields.attribute.map((attribute) => [attribute.name, attributeOf(attribute)]),
      ),
    })),
    tensors: initializer.map(({ name, dims, dataType }, index) => ({
      name,
      type: elementTypeOf(dataType),
      dims,
      offset: Number(external[index]!.offset),
      bytes: Number(external[index]!.length),
    })),
  };
}

interface ModelFields {
  readonly graph: {
    readonly name: string;
    readonly node: readonly {
      name: string;
      opType: string;
      domain: string;
      input: string[];
      output: string[];
      attribute: AttributeFields[];
    }[];
    readonly initializer: readonly {
      name: string;
      dims: number[];
      dataType: number;
      externalData: { key: string; value: string }[];
    }[];
    readonly input: readonly PortFields[];
    readonly output: readonly PortFields[];
  };
}

interface AttributeFields {
  readonly name: string;
  readonly type: number;
  readonly f: number;
  readonly i: number;
  readonly floats: number[];
}

interface PortFields {
  readonly name: string;
  readonly type: {
    readonly tensorType: {
      elemType: number;
      shape: { dim: { dimValue: number; dimParam: string }[] };
    };
  };
}

/** Codes of AttributeProto.AttributeType. */
const attributeTypes = { float: 1, int: 2, floats: 6 } as const;

function attributeOf({ type, f, i, floats }: AttributeFields): Attribute {
  if (type === attributeTypes.floats) return { floats };
  return type === attributeTypes.int ? { int: i } : { float: f };
}

function attributeProto([name, value]: [string, Attribute]): object {
  if ("floats" in value) return { name, floats: value.floats, type: attributeTypes.floats };
  if ("int" in value) return { name, i: value.int, type: attributeTypes.int };
  return { name, f: value.float, type: attributeTypes.float };
}

function portOf({ name, type }: PortFields): Port {
  const { elemType, shape } = type.tensorType;
  return {
    name,
    type: elementTypeOf(elemType),
    dims: shape.dim.map(({ dimValue, dimParam }) => dimParam || dimValue),
  };
}

function elementTypeOf(code: number): ElementType {
  return Object.entries(elementTypes).find(([, known]) => known === code)![0] as ElementType;
}

function nodeProto(node: Node): object {
  return {
    input: node.inputs,
    output: node.outputs,
    name: node.name,
    opType: node.operator,
    domain: node.domain,
    attribute: Object.entries(node.attributes).map(attributeProto),
  };
}

function tensorProto(tensor: ExternalTensor, file: string): object {
  const where = { location: file, offset: tensor.offset, length: tensor.bytes };
  return {
    dims: tensor.dims,
    dataType: elementTypes[tensor.type],
    name: tensor.name,
    externalData: Object.entries(where).map(([key, value]) => ({ key, value: String(value) })),
    dataLocation: 1,
  };
}

function valueInfoProto(port: Port): object {
  const dim = port.dims.map((size) => (typeof size === "number" ? { dimValue: size } : { dimParam: size }));
  return { name: port.name, type: { tensorType: { elemType: elementTypes[port.type], shape: { dim } } } };
}

/** Each message as {field: [number, type, "repeated"?]}. */
const messages: Readonly<Record<string, Readonly<Record<string, readonly [number, string, "repeated"?]>>>> = {
  ModelProto: {
    irVersion: [1, "int64"],
    producerName: [2, "string"],
    graph: [7, "GraphProto"],
    opsetImport: [8, "OperatorSetIdProto", "repeated"],
  },
  OperatorSetIdProto: { domain: [1, "string"], version: [2, "int64"] },
  GraphProto: {
    node: [1, "NodeProto", "repeated"],
    name: [2, "string"],
    initializer: [5, "TensorProto", "repeated"],
    input: [11, "ValueInfoProto", "repeated"],
    output: [12, "ValueInfoProto", "repeated"],
  },
  NodeProto: {
    input: [1, "string", "repeated"],
    output: [2, "string", "repeated"],
    name: [3, "string"],
    opType: [4, "string"],
    attribute: [5, "AttributeProto", "repeated"],
    domain: [7, "string"],
  },
  AttributeProto: {
    name: [1, "string"],
    f: [2, "float"],
    i: [3, "int64"],
    floats: [7, "float", "repeated"],
    type: [20, "int32"],
  },
  TensorProto: {
    dims: [1, "int64", "repeated"],
    dataType: [2, "int32"],
    name: [8, "string"],
    externalData: [13, "StringStringEntryProto", "repeated"],
    dataLocation: [14, "int32"],
  },
  StringStringEntryProto: { key: [1, "string"], value: [2, "string"] },
  ValueInfoProto: { name: [1, "string"], type: [2, "TypeProto"] },
  TypeProto: { tensorType: [1, "TensorTypeProto"] },
  TensorTypeProto: { elemType: [1, "int32"], shape: [2, "TensorShapeProto"] },
  TensorShapeProto: { dim: [1, "DimensionProto", "repeated"] },
  DimensionProto: { dimValue: [1, "int64"], dimParam: [2, "string"] },
};

const modelProto = declareMessages();

function declareMessages(): protobuf.Type {
  const root = new protobuf.Root();
  for (const [name, fields] of Object.entries(messages)) {
    const message = new protobuf.Type(name);
    for (const [field, [number, type, rule]] of Object.entries(fields))
      message.add(new protobuf.Field(field, number, type, rule ?? "optional"));
    root.add(message);
  }
  return root.lookupType("ModelProto");
}
