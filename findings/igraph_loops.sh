#!/usr/bin/env bash
# python-igraph 0.10.2 and 0.11.8: an edge from a node to itself has weight 2 in get_adjacency() and 1 in
# get_adjacency_sparse(). With weights, parallel edges add up in the sparse matrix, and in the other one the last of
# them is left. networkx 2.8.8 and 3.2.1 has 1 and the sum. So the matrix that a graph network multiplies by depends on
# which function made it, and so does a graph that is saved.
# Seen, the edges 0-0, 0-1, 1-2, 1-2 with the weights 2, 1, 1, 5. Element 0,0 without weights: 2 in igraph, 1 in its
# sparse matrix and in networkx. Element 1,2 with weights: 5 in igraph, 6 in its sparse matrix and in networkx. The
# degree of node 0 is 3 in both libraries, and its row adds up to 3 in igraph's dense matrix alone. The normalized
# Laplacian of 0-0, 0-1, 1-2 has the element 0,0 of 0.333 in igraph and of 0.5 in networkx.
# Frugal: a self-loop of a graph counts once (data/graph/graph_data.h); tests/data/graph/ogb_test.cpp, "a self-loop
# stays an edge, once, in a directed and in an undirected graph".
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-igraph=0.10.2*' 'python3-networkx=2.8.8*' python3-scipy
packages trixie 'python3-igraph=0.11.8*' 'python3-networkx=3.2.1*' python3-scipy
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import igraph
import networkx

edges, weights = [(0, 0), (0, 1), (1, 2), (1, 2)], [2, 1, 1, 5]


def line(name, matrix):
    print(name, *("".join(f"{value:g}" for value in row) for row in matrix))


graph = igraph.Graph(n=3, edges=edges)
line("igraph:", graph.get_adjacency().data)
line("igraph, sparse:", graph.get_adjacency_sparse().toarray())
graph.es["weight"] = weights
line("igraph with weights:", graph.get_adjacency(attribute="weight").data)
line("igraph with weights, sparse:", graph.get_adjacency_sparse(attribute="weight").toarray())
other = networkx.MultiGraph(edges)
line("networkx:", networkx.to_scipy_sparse_array(other).toarray())
for edge, weight in zip(other.edges(keys=True), weights):
    other.edges[edge]["weight"] = weight
line("networkx with weights:", networkx.to_scipy_sparse_array(other).toarray())
print("degrees:", graph.degree(), [degree for _, degree in other.degree()])
simple = igraph.Graph(n=3, edges=edges[:3])
print(f"Laplacian, igraph: {simple.laplacian(normalized=True)[0][0]:.3f}")
laplacian = networkx.normalized_laplacian_matrix(networkx.Graph(edges[:3]))
print(f"Laplacian, networkx: {laplacian.toarray()[0, 0]:.3f}")' | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
igraph: 210 102 020
igraph, sparse: 110 102 020
igraph with weights: 210 105 050
igraph with weights, sparse: 210 106 060
networkx: 110 102 020
networkx with weights: 210 106 060
degrees: [3, 3, 2] [3, 3, 2]
Laplacian, igraph: 0.333
Laplacian, networkx: 0.500
END_OF_LINES
done
done_with_it
