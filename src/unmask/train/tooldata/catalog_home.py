"""Training tools: music, smart home."""

from __future__ import annotations

from unmask.train.tooldata.records import ToolSpec, tool

TOOLS: tuple[ToolSpec, ...] = (
    tool(
        "play_song",
        "music",
        "play_track start_song music_play",
        "Play a song.|Play one track.",
        "song:song:track,title,song_name ?artist:artist:by,singer,performer",
        """
        play {song}[ by {artist}]
        put on {song}[ by {artist}]
        I want to hear {song}[ by {artist}]
        Can I hear the song {song}[ by {artist}]?
        start the song {song}[ by {artist}]
        Play the track {song}[ by {artist}] for me
        """,
        """
        I'm in the mood for {song}[ by {artist}]
        let me listen to {song}[ from {artist}]
        """,
        result="status==playing length=minutes",
        reports="Now playing {song}.\n{song} is playing now.",
    ),
    tool(
        "create_playlist",
        "music",
        "new_playlist make_playlist build_playlist",
        "Create a playlist with songs.|Make a new playlist.",
        "name:playlist:title,playlist_name,called songs:song_list:tracks,items,titles",
        """
        (make|create) a playlist called {name} with {songs}
        create the playlist {name} with the songs {songs}
        I want a new playlist named {name} with {songs}
        Put {songs} in a new playlist called {name}
        start a playlist {name} containing {songs}
        New playlist {name}: {songs}
        """,
        """
        group {songs} into a playlist titled {name}
        I'd love a playlist named {name} made of {songs}
        """,
        result="id=order_id tracks=int:2:3",
        reports="I created the playlist {name}.\nYour playlist {name} is ready.",
    ),
    tool(
        "set_volume",
        "music",
        "change_volume volume_level adjust_volume",
        "Set the speaker volume.|Change the volume.",
        "level:percent:volume,percent,value",
        """
        (set|turn) the volume to {level} percent
        Volume {level} percent
        change the volume to {level}
        make the music volume {level} percent
        I want the volume at {level} percent
        put the sound at {level} percent
        """,
        """
        adjust how loud it is to {level} percent
        The speaker should be at {level} percent
        """,
        result="volume=@level",
        reports="The volume is now {volume} percent.",
    ),
    tool(
        "play_podcast",
        "music",
        "start_podcast podcast_play listen_podcast",
        "Play a podcast.|Play a podcast episode.",
        "show:podcast:podcast,title,program ?episode:count:episode_number,number,part",
        """
        play[ episode {episode} of] the podcast {show}
        put on the {show} podcast[, episode {episode}]
        I want to listen to the podcast {show}[, episode {episode}]
        start[ episode {episode} of] the {show} podcast
        Podcast {show}[, episode {episode}]
        Can I hear[ episode {episode} of] the podcast {show}?
        """,
        """
        let me catch up on the {show} podcast[, episode {episode}]
        fire up the podcast {show}[ at episode {episode}]
        """,
        result="status==playing minutes=int:20:80",
        reports="Playing {show}, the episode is {minutes} minutes long.",
    ),
    tool(
        "set_light",
        "home",
        "light_switch control_light toggle_lamp",
        "Switch the light of a room.|Turn lights on or off.",
        "room:room:where,area,location on:on_off:state_on,enabled,power",
        """
        turn {on} the light in the {room}
        switch {on} the {room} light
        turn the {room} lights {on}
        I want the light {on} in the {room}
        In the {room}, switch the lights {on}
        Lights {on} in the {room}
        """,
        """
        flip the {room} lights {on}
        Get the lamps in the {room} switched {on}
        """,
        result="status==ok room=@room",
        reports="The light in the {room} is set.\nDone, the {room} light is updated.",
    ),
    tool(
        "set_light_color",
        "home",
        "color_light tint_lamp change_light_color",
        "Set the color of a light.|Change light colors.",
        "room:room:where,area,location color:color:colour,hue,tint ?brightness:percent:level,percent,intensity",
        """
        make the {room} light {color}[ at {brightness} percent]
        change the {room} lights to {color}[ with {brightness} percent brightness]
        set the light in the {room} to {color}[, {brightness} percent]
        I want {color} light in the {room}[ at {brightness} percent]
        In the {room}, set the lights to {color}[ at {brightness} percent]
        The light in the {room} should be {color}[ at {brightness} percent]
        """,
        """
        give the {room} a {color} glow[ at {brightness} percent]
        bathe the {room} in {color} light[, {brightness} percent bright]
        """,
        result="status==ok color=@color",
        reports="The {room} light is now {color}.\nDone, the {room} light is {color}.",
    ),
    tool(
        "set_thermostat",
        "home",
        "set_heating room_temperature heat_room",
        "Set the temperature of a room.|Control the heating.",
        "room:room:where,area,zone temperature:degrees:degrees,target,celsius",
        """
        set the {room} to {temperature} degrees
        make the {room} {temperature} degrees
        heat the {room} to {temperature} degrees
        I want {temperature} degrees in the {room}
        set the heating to {temperature} in the {room}
        The {room} should be {temperature} degrees
        """,
        """
        bring the {room} to a temperature of {temperature}
        Thermostat in the {room} at {temperature}
        """,
        result="target=@temperature room=@room",
        reports="The {room} is set to {target} degrees.",
    ),
    tool(
        "set_lock",
        "home",
        "door_lock control_lock secure_door",
        "Lock or unlock a door.|Control a door lock.",
        "door:door:entry,which,name locked:lock:lock,is_locked,closed",
        """
        {locked} the {door}
        I want you to {locked} the {door}
        Can you {locked} the {door}?
        Could you please {locked} the {door}?
        Time to {locked} the {door}
        I need the smart lock to {locked} the {door}
        """,
        """
        Would you kindly {locked} the {door}?
        Use the app to {locked} the {door}
        """,
        result="status==ok door=@door",
        reports="Done, the {door} is set.\nThe {door} lock is updated.",
    ),
    tool(
        "start_vacuum",
        "home",
        "vacuum_rooms run_robot clean_rooms",
        "Start the robot vacuum.|Vacuum rooms.",
        "rooms:room_list:areas,where,zones ?at:time:start_time,when,begin",
        """
        vacuum the {rooms}[ at {at}]
        start the robot vacuum in the {rooms}[ at {at}]
        clean the floors in the {rooms}[ at {at}]
        I want the {rooms} vacuumed[ at {at}]
        send the robot vacuum to the {rooms}[ at {at}]
        Vacuum these rooms[ at {at}]: {rooms}
        """,
        """
        have the hoover robot do the {rooms}[ at {at}]
        The {rooms} could use a vacuum run[ at {at}]
        """,
        result="status==started minutes=int:15:70",
        reports="The vacuum is set and needs {minutes} minutes.",
    ),
)
