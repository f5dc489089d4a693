// Command oracle answers questions about the container toolkit's own transformations of CDI specs: one JSON object a
// line, each answered by one JSON object a line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"tags.cncf.io/container-device-interface/specs-go"
)

type request struct {
	Op   string      `json:"op"`
	Spec *specs.Spec `json:"spec"`
	Name string      `json:"name"`
	Old  string      `json:"old"`
	New  string      `json:"new"`
}

type answer struct {
	Spec  *specs.Spec `json:"spec,omitempty"`
	Error string      `json:"error,omitempty"`
}

func transformer(asked *request) (transform.Transformer, error) {
	switch asked.Op {
	case "merge":
		return transform.NewMergedDevice(transform.WithName(asked.Name), transform.WithSkipIfExists(true))
	case "simplify":
		return transform.NewSimplifier(), nil
	case "reroot":
		return root.New(root.WithRoot(asked.Old), root.WithTargetRoot(asked.New), root.WithRelativeTo("host")), nil
	}
	return nil, fmt.Errorf("no such op: %s", asked.Op)
}

func answered(line []byte) answer {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	t, err := transformer(&asked)
	if err == nil {
		err = t.Transform(asked.Spec)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Spec: asked.Spec}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if out.Encode(answered(lines.Bytes())) != nil {
			os.Exit(1)
		}
	}
}
