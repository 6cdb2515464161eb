package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/crawlgate/crawlgate/bench/process"
)

// config makes the robots.txt of the known origins expire within the run, so that refreshes happen
// during the storm.
const config = `{
	admin off
	persist_config off
	robots {
		store file %s
		cache {
			ttl 30s
		}
		fetch {
			timeout %s
			parallel %d
		}
		pace {
			rate off
			concurrency 100000
			queue 100000
		}
		egress {
			allow_private 127.0.0.0/8
		}
	}
}

http://:%s {
	bind 127.0.0.1
	log {
		output file %s
	}
	robots
}
`

func startGateway(ctx context.Context, s settings) (*process.Gateway, error) {
	if s.gateway == "" {
		return nil, errors.New("no -gateway")
	}
	command := []string{s.gateway}
	if s.pin {
		command = []string{"taskset", "-c", strconv.Itoa(gatewayCPU), s.gateway}
	}
	return process.Start(ctx, command, func(port, dir string) (string, error) {
		return fmt.Sprintf(config, filepath.Join(dir, "robots.db"), s.timeout, s.parallel, port, filepath.Join(dir, "access.log")), nil
	})
}

// gatewayCPU is the CPU that only the gateway uses with -pin.
const gatewayCPU = 0

// stayOff restarts this program in its place without the given CPU. Once restarted, it does
// nothing.
func stayOff(cpu int) error {
	const pinned = "STORM_PINNED"
	if os.Getenv(pinned) != "" {
		return nil
	}
	if runtime.NumCPU() < 2 {
		return errors.New("there is no other CPU")
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	others := fmt.Sprintf("%d-%d", cpu+1, cpu+runtime.NumCPU()-1)
	return syscall.Exec(taskset, append([]string{"taskset", "-c", others, self}, os.Args[1:]...), append(os.Environ(), pinned+"=1"))
}
