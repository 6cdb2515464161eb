// Package intake takes in what the network has ready a few pieces at a time, and those first that must not wait.
//
// Go's scheduler and the kernel's poller know no priorities: what is ready at one moment runs in the order in which it
// became ready. When ten thousand requests to unknown sites arrive at once, each takes its 50 to 100 µs of a CPU, and a
// request that could be answered out of memory waits behind all of them, at each of its steps again. So work that
// begins (a connection has been read from, a retrieval of robots.txt is to start) takes a turn here. A few have theirs
// at once. The others wait until the poller has been asked who else is ready, and are then chosen by their [Class].
// What runs at any moment is little, and what comes next is decided late.
//
// Work that takes no turns and keeps all CPUs busy makes the questions slow; there are more turns for each then.
//
// No work is lost or refused: all of it has its turn as fast as the CPUs get it done.
package intake
